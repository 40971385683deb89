"""Checks that leader epochs in the batches never decrease and agree with the checkpoint file."""

from __future__ import annotations

from bisect import bisect_right

from echoless.cli.verification.findings import Findings
from echoless.protocol.record_batch import BatchHeader
from echoless.storage import paths
from echoless.storage.checkpoints import CheckpointError
from echoless.storage.leader_epochs import LeaderEpochs
from echoless.storage.os_file_system import OsFileSystem


class EpochCheck:
    """The leader epochs of one partition; a mismatch is reported once per epoch."""

    def __init__(
        self, directory: str, log_start_offset: int, written_below: float, findings: Findings
    ) -> None:
        """`written_below`: the file's entries for offsets at or above it are not final yet."""
        self._path = paths.join(directory, paths.LEADER_EPOCH_CHECKPOINT)
        self._log_start_offset = log_start_offset
        self._written_below = written_below
        self._findings = findings
        self._latest = -1
        self._reported = -1
        try:
            entries = LeaderEpochs(OsFileSystem(), self._path).entries
        except CheckpointError as error:
            findings.problem(self._path, error)
            entries = ()
        self._epochs = [entry.epoch for entry in entries]
        self._starts = [entry.start_offset for entry in entries]

    def see(self, place: str, header: BatchHeader) -> None:
        """Checks the next batch of the log; `place` names file and position."""
        epoch = header.partition_leader_epoch
        if epoch < self._latest:
            self._findings.problem(place, f"leader epoch {epoch} comes after {self._latest}")
        self._latest = max(self._latest, epoch)
        if not self._log_start_offset <= header.base_offset < self._written_below:
            return
        if epoch == self._reported:
            return
        at = bisect_right(self._starts, header.base_offset) - 1
        expected = self._epochs[at] if at >= 0 else -1
        if expected != epoch:
            self._reported = epoch
            self._findings.problem(
                self._path,
                f"gives offset {header.base_offset} leader epoch {expected}, "
                f"its batch says {epoch}",
            )
