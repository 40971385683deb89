"""Faults on demand: rules that lose, delay, break and crash what they match."""
