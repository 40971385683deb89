"""Where a stream keeps what it must find again: its checkpoint, and the sink's ledger beside it."""

from __future__ import annotations

from pathlib import Path
from typing import Final

_LEDGER: Final = "echoless-ledger"


def location(text: str) -> str:
    """A URI as it is, a path as an absolute one: tasks may have another working directory."""
    return text if "://" in text or text.startswith("file:") else str(Path(text).absolute())


def ledger_of(checkpoint: str) -> str:
    """The ledger's default location."""
    return f"{checkpoint.rstrip('/')}/{_LEDGER}"
