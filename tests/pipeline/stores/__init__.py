"""Tests of the ledger in stores that are not directories, beside servers that people use."""
