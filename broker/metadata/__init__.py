"""Metadata: what the cluster knows of topics, brokers and producer ids, kept in the tree."""
