"""Producers for scenarios: real clients in separate processes, and a scripted one."""
