"""Tests of `protocol/state_records/`."""
