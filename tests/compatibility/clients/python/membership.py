"""One run of `subscribe`: a member of a group that reads until SIGTERM, and its log of everything that it saw.

The log and the command line are defined in tests/compatibility/README.md.
"""

from __future__ import annotations

import argparse
import signal
import time
from collections.abc import Iterable, Mapping


class Membership:
    """The options, the log, and whether it should go on."""

    succeeded = True

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.is_over = False
        self._log = open(options.log, "a", buffering=1)  # noqa: SIM115 - until exit
        self._records = 0
        signal.signal(signal.SIGTERM, lambda *_: self.stop())

    def stop(self) -> None:
        """Leaves the group after the records in hand."""
        self.is_over = True

    def assigned(self, generation: int, partitions: Iterable[int]) -> None:
        """These partitions are now read from their committed offsets, in this generation (-1: unknown)."""
        self._note("assigned", generation, *sorted(partitions))

    def revoked(self, partitions: Iterable[int]) -> None:
        """These are no longer read."""
        self._note("revoked", *sorted(partitions))

    def record(self, partition: int, offset: int, value: bytes | None) -> None:
        """One record as read."""
        self._records += 1
        self._note("record", partition, offset, (value or b"").decode())

    def committing(self, offsets: Mapping[int, int]) -> None:
        """A commit of these offsets by partition is about to be sent."""
        self._note("committing", *(part for pair in sorted(offsets.items()) for part in pair))

    def committed(self, offsets: Mapping[int, int]) -> None:
        """It was answered without an error."""
        self._note("committed", *(part for pair in sorted(offsets.items()) for part in pair))

    def failed(self, reason: object) -> None:
        """It was not."""
        self._note("failed", str(reason).replace("\n", " "))

    def summary(self) -> dict[str, int]:
        """The fields of the summary line."""
        self._log.close()
        return {"records": self._records}

    def _note(self, *parts: object) -> None:
        self._log.write(" ".join(map(str, (time.time_ns() // 1000, *parts))) + "\n")
