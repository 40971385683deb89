"""Tests of `protocol/consumer_offsets/`."""
