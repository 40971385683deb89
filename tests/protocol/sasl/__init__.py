"""Tests of `protocol/sasl/`."""
