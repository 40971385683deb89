"""Tools for testing a producer: a broker in a process, faults, decisions, scenarios, clients.

Sees a broker only from outside: as a process, over HTTP and its two ports.
"""
