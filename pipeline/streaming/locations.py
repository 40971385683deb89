"""Locations of a stream's persistent state: its checkpoint, and the sink's ledger in it."""

from __future__ import annotations

from pathlib import Path
from typing import Final

_LEDGER: Final = "echoless-ledger"


def resolve_location(text: str) -> str:
    """Makes a path absolute, since tasks may have another working directory; a URI stays as it is."""
    return text if "://" in text or text.startswith("file:") else str(Path(text).absolute())


def default_ledger(checkpoint: str) -> str:
    """Returns the location of the ledger if none is given: in the checkpoint."""
    return f"{checkpoint.rstrip('/')}/{_LEDGER}"
