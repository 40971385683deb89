"""Coordinators: pure state machines whose state lives in internal topics. They import `protocol/` only."""
