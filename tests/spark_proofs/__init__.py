"""A sink of Spark under every fault there is: each source record must be stored once, in order."""
