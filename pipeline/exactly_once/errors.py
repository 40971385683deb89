"""What the sink refuses to do, and why. Each message says what to do about it."""

from __future__ import annotations


class SinkError(Exception):
    """The rows of this task cannot be written; nothing more is sent."""


class OptionError(SinkError, ValueError):
    """An option is missing, unknown or impossible; the message names it."""


class LedgerError(SinkError):
    """The ledger cannot be used: it is out of reach, damaged, or another query's."""


class RowError(SinkError, ValueError):
    """A row is no record: it has no topic, or its partition does not exist."""


class ReplayMismatchError(SinkError):
    """The rows of a replay are not those that an earlier attempt has stored."""
