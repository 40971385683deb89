"""Replaying the de-duplication decision over a log, and comparing the snapshots with the outcome.

Whatever is in a log must have been decided as Append by the same `echoless.protocol.dedup.decide` that
the broker uses: a Duplicate is a record stored twice, a Reject a gap, an overlap or a fenced
producer that got through. What the broker had forgotten when it decided (expired or evicted
producers, which may begin again at sequence 0) is forgotten here too, as far as the records'
timestamps tell.
"""

from __future__ import annotations

from dataclasses import replace

from echoless.broker.config.loading import Config
from echoless.cli.data_files import offset_files
from echoless.cli.verification.findings import Findings
from echoless.protocol.control_records import EndMarker
from echoless.protocol.dedup import (
    Append,
    BatchMetadata,
    Duplicate,
    PartitionRules,
    ProducerEntry,
    Reject,
    UnknownProducerId,
    commit,
    decide,
)
from echoless.protocol.errors import ErrorCode
from echoless.protocol.producer_effect import NO_EFFECT, effect_of
from echoless.protocol.record_batch import BatchHeader
from echoless.protocol.sequence import NO_PRODUCER_EPOCH
from echoless.storage import paths
from echoless.storage.file_system import StorageError
from echoless.storage.os_file_system import OsFileSystem
from echoless.storage.partition_metadata import read_older_ids_end
from echoless.storage.producers.snapshot import Snapshot, SnapshotError, read_snapshot
from echoless.storage.producers.state import ProducerStates

_NO_TIME = 0
"""Replayed entries carry no time of append: the log does not keep it."""


class ProducerCheck:
    """The producers of one partition."""

    def __init__(
        self, directory: str, first_offset: int, config: Config, findings: Findings
    ) -> None:
        self._config = config
        self._findings = findings
        self._states = ProducerStates(config.producer_state_batches_to_retain)
        self._snapshots = offset_files(directory, paths.SNAPSHOT)
        self._is_complete = first_offset == 0
        """Whether `_states` knows every producer of the offsets before the next batch."""
        self.trusted = True
        """Off once damage hides batches: what follows is then no evidence of anything."""
        self._hole_end = 0
        """The end of the last hole in the offsets, where records were removed."""
        self._older_ids_end = self._read_older_ids_end(directory)
        self._start_from(first_offset)

    @staticmethod
    def _read_older_ids_end(directory: str) -> int:
        try:
            return read_older_ids_end(OsFileSystem(), directory)
        except StorageError:
            return 0  # reported with the file itself

    @property
    def producer_count(self) -> int:
        return len(self._states)

    def _start_from(self, first_offset: int) -> None:
        """Loads the newest snapshot at or below the first offset that the log still holds."""
        while self._snapshots and self._snapshots[0][0] <= first_offset:
            path = self._snapshots.pop(0)[1]
            snapshot = self._read(path)
            if snapshot is not None and first_offset > 0:
                self._states.clear()
                for producer_id, entry in snapshot.items():
                    self._states.put(producer_id, entry)
                self._is_complete = snapshot.offset == first_offset

    def see(self, place: str, header: BatchHeader, marker: EndMarker | None) -> None:
        """Takes in the next batch of the log; `place` names file and position."""
        self.reach(header.base_offset)
        effect = effect_of(header, marker)
        if effect is NO_EFFECT:
            return
        entry = self._states.get(header.producer_id)
        if effect.remembers_sequence and self.trusted:
            entry = self._judge(place, header, entry)
        window = self._states.window
        entry = commit(entry, header, header.base_offset, _NO_TIME, window)
        self._states.put(header.producer_id, entry)

    def skip_hole(self, start: int, end: int) -> None:
        """Notes that the log lacks the offsets from `start` up to `end`, and what producers sent there."""
        self.reach(start)
        while self._snapshots and self._snapshots[0][0] < end:
            self._snapshots.pop(0)  # compaction has merged the segment that began there
        self._is_complete = False
        self._hole_end = end

    def reach(self, offset: int) -> None:
        """All batches below `offset` were seen: compares the snapshots up to there."""
        while self._snapshots and self._snapshots[0][0] <= offset:
            snapshot_offset, path = self._snapshots.pop(0)
            snapshot = self._read(path)
            if snapshot is not None and self.trusted:
                if snapshot_offset != offset:
                    self._findings.problem(path, f"no batch begins at offset {snapshot_offset}")
                else:
                    self._compare(path, snapshot)

    def finish(self, end_offset: int) -> list[str]:
        """The log ends before `end_offset`; returns the snapshots after it."""
        self.reach(end_offset)
        return [path for _, path in self._snapshots]

    def _judge(
        self, place: str, header: BatchHeader, entry: ProducerEntry | None
    ) -> ProducerEntry | None:
        """Reports a batch that should not be there; returns what it is to be committed to."""
        knows_all = self._is_complete or header.base_sequence == 0
        unknown = self._config.unknown_producer_id if knows_all else UnknownProducerId.ACCEPT
        rules = PartitionRules(header.base_offset > 0, unknown, self._older_ids_end)
        decision = decide(entry, header, rules)
        if isinstance(decision, Append):
            return entry
        if entry is not None and self._may_be_forgotten(header, entry):
            return None
        if entry is not None and self._may_lie_in_hole(decision, entry):
            return entry
        if isinstance(decision, Duplicate):
            offset = decision.original.base_offset
            if header.producer_epoch == NO_PRODUCER_EPOCH:
                # Without an epoch nothing is checked beyond the window, which a topic can narrow.
                self._findings.note(place, f"the same sequences are at offset {offset}")
                return entry
            text = f"stored twice: the same sequences are at offset {offset}"
        else:
            text = f"{decision.code.name}: {decision.reason}"
        self._findings.problem(
            place,
            f"producer {header.producer_id} epoch {header.producer_epoch} "
            f"sequences {header.base_sequence} to {header.last_sequence}: {text}",
        )
        return entry

    def _may_lie_in_hole(self, decision: Duplicate | Reject, entry: ProducerEntry) -> bool:
        """Whether what a producer's batch does not follow may have been removed from the log."""
        is_gap = (
            isinstance(decision, Reject) and decision.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        )
        last_offset = entry.batches[-1].last_offset if entry.batches else -1
        return is_gap and last_offset < self._hole_end

    def _may_be_forgotten(self, header: BatchHeader, entry: ProducerEntry) -> bool:
        """Whether the broker may not have known the producer when it decided."""
        config = self._config
        is_fresh = (
            header.base_sequence == 0 or config.unknown_producer_id is UnknownProducerId.ACCEPT
        )
        silence_ms = header.max_timestamp - entry.last_timestamp
        return is_fresh and (
            config.producers_per_partition_max > 0 or silence_ms >= config.producer_id_expiration_ms
        )

    def _read(self, path: str) -> Snapshot | None:
        try:
            return read_snapshot(OsFileSystem(), path)
        except (SnapshotError, StorageError) as error:
            self._findings.problem(path, error)
            return None

    def _compare(self, path: str, snapshot: Snapshot) -> None:
        """Every producer of the snapshot must be what the replay says."""
        for producer_id, entry in snapshot.items():
            replayed = self._states.get(producer_id)
            if replayed is None:
                if self._is_complete:
                    self._findings.problem(
                        path, f"knows producer {producer_id}, which never wrote to this log"
                    )
            elif self._is_complete and not self._agree(entry, replayed):
                self._findings.problem(
                    path,
                    f"producer {producer_id} is {_shown(entry)}, the log says {_shown(replayed)}",
                )
        if snapshot.producers < len(self._states) and self._is_complete:
            self._check_forgotten(path, snapshot)

    def _agree(self, snapshot_entry: ProducerEntry, replayed: ProducerEntry) -> bool:
        """Whether both say the same, as far as both windows reach.

        Where unknown producers may begin anywhere, one that was forgotten continues with a new run, and
        the log does not show that.
        """
        reach = min(len(snapshot_entry.batches), len(replayed.batches))
        found = _comparable(snapshot_entry, reach)
        expected = _comparable(replayed, reach)
        found = replace(found, batches=_as_rewritten(found.batches, expected.batches))
        if self._config.unknown_producer_id is UnknownProducerId.ACCEPT:
            expected = replace(expected, run_start=found.run_start)
        return found == expected

    def _check_forgotten(self, path: str, snapshot: Snapshot) -> None:
        """A producer that the snapshot lacks must have been silent for long, or evicted."""
        if self._config.producers_per_partition_max > 0:
            return
        kept = {producer_id for producer_id, _ in snapshot.records()}
        written_ms = OsFileSystem().modified_ms(path)
        for producer_id, entry in self._states.items():
            silence_ms = written_ms - entry.last_timestamp
            if producer_id not in kept and silence_ms < self._config.producer_id_expiration_ms:
                self._findings.problem(path, f"lacks producer {producer_id}: {_shown(entry)}")


def _comparable(entry: ProducerEntry, reach: int) -> ProducerEntry:
    batches = entry.batches[-reach:] if reach else ()
    return replace(entry, last_append_ms=_NO_TIME, batches=batches)


def _as_rewritten(
    batches: tuple[BatchMetadata, ...], replayed: tuple[BatchMetadata, ...]
) -> tuple[BatchMetadata, ...]:
    """The batches with the CRC and the newest time of those in the log where compaction has changed these."""
    return tuple(
        one._replace(crc=None, timestamp=other.timestamp) if other.crc is None else one
        for one, other in zip(batches, replayed, strict=True)
    )


def _shown(entry: ProducerEntry) -> str:
    window = ", ".join(
        f"{b.base_sequence}-{b.last_sequence}@{b.base_offset}" for b in entry.batches
    )
    return f"epoch {entry.producer_epoch} with sequences {window or 'none'}"
