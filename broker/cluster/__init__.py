"""Membership: how a broker joins, follows and leaves its cluster."""
