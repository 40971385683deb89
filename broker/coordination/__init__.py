"""Shared state of the cluster: the node tree, and what is written over it."""
