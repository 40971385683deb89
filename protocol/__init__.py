"""Bytes <-> values, and the de-duplication decision. Pure: knows no asyncio, no files, no ZooKeeper."""
