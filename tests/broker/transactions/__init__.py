"""Tests of the coordinator of transactions as a broker serves it."""
