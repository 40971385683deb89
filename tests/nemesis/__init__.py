"""Real brokers, a real ZooKeeper and real clients, and somebody who breaks things from a seed."""
