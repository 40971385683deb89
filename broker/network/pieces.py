"""An answer that is written slowly, or broken off: faults ask for it."""

from __future__ import annotations

from typing import Self


class Pieces(tuple[bytes]):  # noqa: SLOT001 - a tuple can have no slots of its own
    """An answer written `piece_bytes` at a time, with a pause between pieces.

    With `closes`, which says why, the connection is closed after the last piece.
    """

    piece_bytes: int
    pause_s: float
    closes: str

    def __new__(cls, data: bytes, piece_bytes: int, pause_s: float, *, closes: str = "") -> Self:
        pieces = super().__new__(cls, (data,))
        pieces.piece_bytes, pieces.pause_s, pieces.closes = piece_bytes, pause_s, closes
        return pieces
