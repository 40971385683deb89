"""Errors of the sink. Each message says what to do about it."""

from __future__ import annotations


class SinkError(Exception):
    """The rows of this task cannot be written; nothing more is sent."""


class OptionError(SinkError, ValueError):
    """An option is missing, unknown or invalid; the message names it."""


class LedgerError(SinkError):
    """The ledger cannot be used: it is unreachable, damaged, or another query's."""


class RowError(SinkError, ValueError):
    """A row cannot become a record: it has no topic, or its partition does not exist."""


class ReplayMismatchError(SinkError):
    """The rows of a replay differ from those that an earlier attempt stored."""
