"""Producers that play in scenarios: real clients in processes of their own, and a scripted one."""
