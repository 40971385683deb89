"""Transactions of a producer: its session with the coordinator, and what is open."""
