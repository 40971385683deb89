"""Errors of the sink. Each message says what to do about it."""

from __future__ import annotations

from typing import Final

_MESSAGE_MAX: Final = 300
"""Characters of a file system's message that are shown: some list every path that they have tried."""


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


def unreachable(error: Exception, uri: str = "") -> LedgerError:
    """Makes the error of a ledger whose store has failed."""
    where = f"{uri}: " if uri else ""
    return LedgerError(f"the ledger cannot be reached: {where}{first_line(error)}")


def first_line(error: Exception) -> str:
    """Returns the first line of an error's message."""
    return str(error).strip().partition("\n")[0][:_MESSAGE_MAX] or type(error).__name__


NEW_CHECKPOINT: Final = "A new checkpoint (a full refresh of a pipeline begins one, too) needs a new sink name or another ledger"
