"""Partitions: the replicas this broker holds, their roles and their high watermarks."""
