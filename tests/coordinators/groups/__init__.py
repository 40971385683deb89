"""Tests of `coordinators/groups/`."""
