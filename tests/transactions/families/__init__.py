"""Clients of every family that write numbers in transactions, and clients that read what is committed."""
