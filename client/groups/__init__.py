"""Membership of consumer groups, by the classic protocol, with the generation in the caller's hands."""
