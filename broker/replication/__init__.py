"""Replication: followers copy the leader's log, the leader knows what they have."""
