"""Compacted logs of random shapes, read to the end by clients of eight families."""
