"""Transactions in the simulated world: producers, copiers and readers over the Kafka port, and whole histories of them."""
