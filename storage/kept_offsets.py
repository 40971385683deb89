"""The offsets of a log that are kept on disk outside its own directory.

This class is for a log without any. `directory_checkpoints.py` has the one for the logs of a data
directory. Called by `log.py` and `recovery.py`.
"""

from __future__ import annotations

from typing import Final

OFFSET_MAX: Final = 2**63 - 1


class KeptOffsets:
    """The recovery point, the high watermark and the log start of one log, on disk."""

    @property
    def log_start(self) -> int:
        """The log start on disk: no later start needs the segments below it."""
        return OFFSET_MAX

    @property
    def recovery_point(self) -> int:
        """The recovery point on disk: no later start scans what is below it."""
        return OFFSET_MAX

    def changed(self) -> None:
        """Notes that the log has changed: the offsets on disk may be older, old segments may go."""

    def lower(self, offset: int) -> None:
        """Lowers every offset on disk to `offset` at most, durably: the log is about to end there."""

    def put_log_start(self, offset: int) -> None:
        """Sets the log start on disk to `offset`, durably, where the first segment begins."""

    def hold(self) -> None:
        """Has checkpoints leave the offsets on disk as they are, until `release`.

        Only `lower` and `put_log_start` change them meanwhile.
        """

    def release(self) -> None:
        """Lets checkpoints write the log's offsets again, those from now on."""
