"""Tests of `coordinators/`."""
