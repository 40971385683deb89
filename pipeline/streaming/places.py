"""Locations of a stream's persistent state: its checkpoint, and the sink's ledger beside it."""

from __future__ import annotations

from pathlib import Path
from typing import Final

_LEDGER: Final = "echoless-ledger"


def location(text: str) -> str:
    """A URI unchanged, a path made absolute: tasks may have another working directory."""
    return text if "://" in text or text.startswith("file:") else str(Path(text).absolute())


def ledger_of(checkpoint: str) -> str:
    """The ledger's default location."""
    return f"{checkpoint.rstrip('/')}/{_LEDGER}"
