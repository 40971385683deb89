"""The decisions of replication as functions of events: no clock, no loop, no network."""
