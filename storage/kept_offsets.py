"""What is kept on disk, outside a log's own directory, of that log's offsets.

This class is for a log of which nothing is kept. `directory_checkpoints.py` has the one for the logs of
a data directory. Called by `log.py` and `recovery.py`.
"""

from __future__ import annotations

from typing import Final

OFFSET_MAX: Final = 2**63 - 1


class KeptOffsets:
    """The recovery point, the high watermark and the log start of one log, on disk."""

    @property
    def log_start(self) -> int:
        """No start expects records below it, whatever crash comes next: their segments may go."""
        return OFFSET_MAX

    def lower(self, offset: int) -> None:
        """When it returns, no offset on disk lies above `offset`: the log is about to end there."""

    def put_log_start(self, offset: int) -> None:
        """When it returns, the log start on disk is `offset`, where the first segment begins."""
