"""Errors of the reader. Each message says what to do about it."""

from __future__ import annotations


class ReadError(Exception):
    """The topics cannot be read; the message names the topic or partition and says why."""


class ReadOptionError(ReadError, ValueError):
    """An option is missing, unknown or invalid; the message names it."""


class DataLossError(ReadError):
    """Records that were to be read do not exist any more; with `failOnDataLoss=false` the reader goes on without them."""
