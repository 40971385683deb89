"""Why there is no connection to a broker."""

from __future__ import annotations


class ConnectionFailedError(Exception):
    """Communication with the broker failed; the message is one line that says why, and what to try."""


class AuthenticationError(ConnectionFailedError):
    """One side refused the other's certificate or password. Another attempt would end in the same way."""
