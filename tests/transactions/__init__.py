"""Transactions as clients see them, from the first request to what readers are given."""
