"""Real brokers, a real ZooKeeper and real clients, and faults drawn from a seed."""
