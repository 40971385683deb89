"""Tests of `broker/authentication/`."""
