"""The room that an answer about many groups has: it is bounded before it is built.

One group is always answered, however much there is to say of it, since nothing else would end the client's asking. The
groups after it are answered as long as there is room; the others get `NO_ROOM`, with which clients ask for those alone
again, so that each request of theirs gets ahead.
"""

from __future__ import annotations

from typing import Final

from echoless.protocol.errors import ErrorCode

BYTES_MAX: Final = 16 * 1024 * 1024
"""Bytes of metadata, assignments and rows in one answer; twice as many while it is encoded, and then as many as one group has."""
ROW_BYTES: Final = 256
"""The memory of a row besides its texts, before it is encoded."""
NO_ROOM: Final = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


class AnswerRoom:
    """The room that is left; false once it is used up."""

    def __init__(self) -> None:
        self.used = 0
        """Bytes that were taken."""

    def __bool__(self) -> bool:
        return self.used < BYTES_MAX

    def take(self, size: int) -> None:
        """Uses room for a row with so many bytes of its own."""
        self.used += size + ROW_BYTES
