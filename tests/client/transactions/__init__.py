"""Transactions of our own producer."""
