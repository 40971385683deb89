"""Real brokers killed with SIGKILL under real producers: nothing lost, nothing twice, in order."""
