"""One partition's log: batches in segments, and the producer state that goes with them.

Appending validates the batch, writes its bytes and publishes, in this order. Nothing that a reader or
the next batch can see changes before the write has succeeded; after it nothing can fail.

Invariant: `log_start_offset <= log_end_offset`, and `recovery_point <= log_end_offset`.
Invariant: the producer state is that of all batches below `log_end_offset`.

Times are the data directory's own clock (`clock_checkpoint.py`), which no one sets, so that no step
of the wall clock makes a producer idle. The wall-clock time only stamps and deletes records.

Single owner: every method is called from one thread, except where its docstring says otherwise;
`PendingFlush.run`, `PendingSegmentRemoval.run` and `PendingChange.run` may run in another.

`Log` is the room's face to the broker, so it has a method for each thing that a broker does with a
log. It holds the offsets and the producer state, and does the appending itself; the other parts are
next door: opening (`recovery.py`), what is on disk (`durability.py`), cutting (`truncation.py`),
beginning anew (`replacement.py`), both through `pending_change.py`, and deleting (`old_segments.py`).

Called by the broker's partitions and `log_directory.py`. Knows nothing of leaders and followers, and of
the high watermark only what it is passed.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

from echoless.protocol.dedup import (
    APPEND,
    Duplicate,
    PartitionRules,
    ProducerEntry,
    Reject,
    commit,
    decide,
    decide_epoch,
)
from echoless.protocol.dedup import Append as AppendDecision
from echoless.protocol.errors import ErrorCode, KafkaError
from echoless.protocol.marker_decision import decide_marker, decide_membership
from echoless.protocol.producer_effect import NO_EFFECT, effect_of, marker_in
from echoless.protocol.record_batch import (
    LEADER_STAMP,
    LOG_OVERHEAD,
    MAGIC_POSITION,
    TRANSACTIONAL_BIT,
    BatchHeader,
    Buffer,
    read_header,
    with_log_append_time,
)
from echoless.storage import paths, retention
from echoless.storage.append_origin import AppendOrigin, LeaderOrigin
from echoless.storage.appended import Appended, ReplicatedAppend
from echoless.storage.compaction.compaction import Compaction
from echoless.storage.durability import Durability
from echoless.storage.file_system import StorageError
from echoless.storage.log_config import LogConfig
from echoless.storage.new_log import begin
from echoless.storage.old_segments import OldSegments
from echoless.storage.opening import LogOpening, Recovered
from echoless.storage.pending_change import PendingChange
from echoless.storage.pending_flush import PendingFlush
from echoless.storage.producers.replay import remove_snapshots, replay_batch
from echoless.storage.producers.snapshot import encode_snapshot
from echoless.storage.producers.state import ProducerStates
from echoless.storage.replicated_batches import CheckedBatch, check_batches, count_run
from echoless.storage.scrub import ClosedSegment
from echoless.storage.segment import Segment

if TYPE_CHECKING:
    from echoless.protocol.control_records import EndMarker
    from echoless.storage.compaction.cleaning import CleaningReport
    from echoless.storage.compaction.swap import PendingSwap
    from echoless.storage.empty_batches import Passed
    from echoless.storage.pending_segment_removal import PendingSegmentRemoval
    from echoless.storage.producers.open_transactions import ClosedTransaction
    from echoless.storage.producers.snapshot_chunk import SnapshotChunk
    from echoless.storage.replacement import NewLog
    from echoless.storage.time_lookup import LookUp

_Result = TypeVar("_Result")

EXPIRED_AT_ONCE_MAX: Final = 1000
_COPIED_MAX: Final = 4096
"""Batches of fewer bytes are copied for the write, which is faster than a view of them."""
_new: Final = tuple.__new__
"""Makes a named tuple in half the time of calling its class: 1 % of a produce."""
_CLIENT: Final = AppendOrigin.CLIENT
"""Read once: a member of an enum takes 0.1 to 0.2 us in Python 3.11."""


class Log:
    """The log in one partition directory."""

    def __init__(self, opening: LogOpening, recovered: Recovered) -> None:
        """Use `Log.open`."""
        self.directory = opening.directory
        self.config = opening.config
        self.recovery = recovered.report
        self.producers = recovered.producers
        self.leader_epochs = recovered.leader_epochs
        self.log_start_offset = recovered.log_start_offset
        self.log_end_offset = recovered.segments.active.next_offset
        self.failure: StorageError | None = None
        """The error of a change that could not be finished; the log accepts no more batches then."""
        self._change: PendingChange[Any] | None = None
        """The change that is under way; the log accepts no batches meanwhile."""
        self._is_writable = True
        """Whether there is neither a failure nor a change."""
        self._fs = opening.fs
        self._segments = recovered.segments
        self._durability = Durability(
            opening.fs,
            opening.directory,
            recovery_point=recovered.recovery_point,
            snapshots=recovered.snapshots,
            leader_epochs=recovered.leader_epochs,
            make_name_durable=opening.make_name_durable,
        )
        self._kept = opening.kept
        self._old_segments = OldSegments(
            opening.fs,
            opening.directory,
            segments=recovered.segments,
            durability=self._durability,
            leader_epochs=recovered.leader_epochs,
            kept=opening.kept,
        )
        self.compaction = Compaction(
            opening.fs,
            opening.directory,
            segments=recovered.segments,
            durability=self._durability,
            kept=opening.kept,
            # After a loss that was accepted the log may end earlier: what is appended now is dirty.
            cleaned_to=min(opening.cleaned_to, recovered.segments.active.next_offset),
        )
        self._latest_ms = opening.now_ms
        """The latest time that a caller has passed: no batch was appended after it."""
        self._set_rules()

    @classmethod
    def open(cls, opening: LogOpening) -> Log:
        """Opens or creates the log in an existing directory; see `recovery.py`.

        Raises `StorageError`, `CorruptLogError`.
        """
        if opening.is_new:
            return cls(opening, begin(opening))
        from echoless.storage.recovery import recover  # noqa: PLC0415 - a new data directory has no log to recover

        return cls(opening, recover(opening))

    @property
    def name(self) -> str:
        """`<topic>-<partition>`."""
        return paths.name_of(self.directory)

    @property
    def recovery_point(self) -> int:
        """Everything below it has been synced."""
        return self._durability.recovery_point

    @property
    def first_offset(self) -> int:
        """The base offset of the first segment: at or below the log start."""
        return self._segments.first.base_offset

    @property
    def size_bytes(self) -> int:
        return self._segments.size_bytes

    @property
    def segment_count(self) -> int:
        return len(self._segments)

    @property
    def dirty_ratio(self) -> float | None:
        """The part that compaction could clean and has not; None for a log that is not compacted."""
        return self.compaction.dirty_ratio if self.config.is_compacted else None

    @property
    def is_changing(self) -> bool:
        """Whether the log is being cut or replaced; only `finish_change` may be called then."""
        return self._change is not None

    def _set_rules(self) -> None:
        config = self.config
        self._rules = PartitionRules(
            self.log_end_offset > 0, config.unknown_producer_id, config.older_ids_end
        )

    def _rules_of_unknown(self) -> PartitionRules:
        rules = self._rules
        if self.producers.lost_from < rules.older_ids_end:
            # An older id that was here and is not known any more would store its repeats again.
            return PartitionRules(rules.has_held_records, rules.unknown_producer_id)
        return rules

    # Appending

    def append(  # noqa: C901, PLR0912 - flat, because each call costs every batch
        self,
        batch: Buffer,
        header: BatchHeader,
        leader_epoch: int,
        now_ms: int,
        log_append_ms: int | None = None,
        *,
        origin: LeaderOrigin = _CLIENT,
        marker: EndMarker | None = None,
    ) -> Appended | Duplicate | Reject:
        """Decides on one validated batch, and appends it as its leader; `batch` is not kept.

        `origin`: a client, or a coordinator of this broker; it says what is decided on. `marker`: the one in the batch, if the
        caller has just built it; otherwise it is read.
        `log_append_ms` is the wall-clock time for LogAppendTime; None: `now_ms`. Raises `KafkaError`
        RECORD_LIST_TOO_LARGE for a batch larger than a segment, `StorageError` if the disk fails;
        the log is unchanged then.
        """
        config, is_client = self.config, origin is _CLIENT
        length, timestamp = header.batch_length, header.max_timestamp
        if length + LOG_OVERHEAD > config.segment_bytes:
            raise _too_large(header, config)
        entry, effect, producer_id = None, None, header.producer_id
        has_effect = producer_id >= 0  # a client's batch always has a sequence
        if has_effect:
            entry = self.producers.get(producer_id)
            if is_client:
                rules = self._rules_of_unknown() if entry is None else self._rules
                decision = decide(entry, header, rules)
            else:
                effect = effect_of(header, marker or marker_in(header, batch))
                has_effect = effect is not NO_EFFECT
                decision = self._decide_for_coordinator(entry, header, effect.end)
            if (
                is_client
                and self.producers.has_transactions
                and decision is APPEND
                and not header.attributes & TRANSACTIONAL_BIT
            ):
                is_open = self.producers.open_transaction(producer_id) is not None
                decision = decide_membership(header, is_open=is_open)
            if decision is not APPEND:
                assert not isinstance(decision, AppendDecision)
                return decision
        log_append_time = -1
        if config.log_append_time:
            log_append_time = now_ms if log_append_ms is None else log_append_ms
            batch = with_log_append_time(batch, header, log_append_time)
            header = read_header(batch)
            timestamp = header.max_timestamp
        base_offset = self.log_end_offset
        last_offset = base_offset + header.last_offset_delta
        segment = self._segments.active
        if (
            not self._is_writable
            or leader_epoch != self.leader_epochs.latest_epoch
            or segment.must_roll(header, last_offset, now_ms, config)
        ):
            segment = self._writable(header, last_offset, leader_epoch, now_ms)
        stamp = LEADER_STAMP.pack(base_offset, length, leader_epoch)
        rest = batch if length < _COPIED_MAX else memoryview(batch)
        segment.append((stamp, rest[MAGIC_POSITION:]), length, last_offset, timestamp)
        # Written; nothing can fail any more.
        self.log_end_offset = last_offset + 1
        if now_ms > self._latest_ms:  # noqa: PLR1730 - a third of the time of `max`
            self._latest_ms = now_ms
        if not base_offset:
            self._set_rules()
        if has_effect:
            after = commit(entry, header, base_offset, now_ms, config.window)
            if header.attributes & TRANSACTIONAL_BIT:
                effect = effect or effect_of(header, None)
                aborted = self.producers.put_transactional(after, header, base_offset, effect)
                if aborted is not None:
                    self._segments.note_aborted(segment, aborted)
            else:
                self.producers.put(producer_id, after)
        return _new(Appended, (base_offset, last_offset, timestamp, log_append_time))

    def _decide_for_coordinator(
        self, entry: ProducerEntry | None, header: BatchHeader, marker: EndMarker | None
    ) -> AppendDecision | Duplicate | Reject:
        if marker is None:
            return decide_epoch(entry, header)
        return decide_marker(entry, self.producers.last_marker(header.producer_id), header, marker)

    def last_stable_offset(self, high_watermark: int) -> int:
        """The offset below which every transaction has ended, and is committed; at most the high watermark.

        That of the call before was not higher, unless the log has been cut.
        """
        transactions = self.producers.open_transactions
        if transactions is None:
            return high_watermark
        return transactions.last_stable_offset(high_watermark, self.log_start_offset)

    def append_replicated(self, batches: Buffer, now_ms: int) -> ReplicatedAppend:
        """Appends batches of the leader as they are (origin: replica); the leader has decided on them.

        Raises `DecodeError`, with nothing written, unless the CRCs match and neither offsets nor
        leader epochs fall. A `StorageError` may leave some of the batches appended.
        """
        view = memoryview(batches)
        checked = check_batches(view, self.log_end_offset, self.leader_epochs.latest_epoch)
        epochs_moved_back = start = 0
        while checked:
            first = checked[0].header
            segment = self._writable(first, first.last_offset, first.partition_leader_epoch, now_ms)
            count = count_run(checked, segment, now_ms, self.config)
            run, checked = checked[:count], checked[count:]
            end = run[-1].end_position
            epochs_moved_back += self._append_run(segment, view[start:end], run, now_ms)
            start = end
        self._set_rules()
        return ReplicatedAppend(self.log_end_offset - 1, epochs_moved_back)

    def _append_run(
        self, segment: Segment, batches: Buffer, run: list[CheckedBatch], now_ms: int
    ) -> int:
        """Writes batches to the segment; returns how many producer epochs moved back."""
        headers = [one.header for one in run]
        segment.append_run(batches, headers)
        # Written; nothing can fail any more.
        self.log_end_offset = headers[-1].next_offset
        self._latest_ms = max(self._latest_ms, now_ms)
        epochs_moved_back = 0
        for one in run:
            replayed = replay_batch(self.producers, one.header, one.marker, now_ms)
            epochs_moved_back += replayed.epoch_moved_back
            if replayed.aborted is not None:
                self._segments.note_aborted(segment, replayed.aborted)
        return epochs_moved_back

    def _writable(
        self, header: BatchHeader, last_offset: int, leader_epoch: int, now_ms: int
    ) -> Segment:
        """The segment for the batch, after rolling and noting the leader epoch if necessary."""
        if not self._is_writable:
            self._check_writable()
        latest_epoch = self.leader_epochs.latest_epoch
        if leader_epoch != latest_epoch:
            assert leader_epoch > latest_epoch, f"leader epoch {leader_epoch} after {latest_epoch}"
            # Before a hole that compaction has left on the leader: the epoch may have begun in it.
            self.leader_epochs.assign(leader_epoch, self.log_end_offset)
        segment = self._segments.active
        if segment.must_roll(header, last_offset, now_ms, self.config) and (
            self._fs.can_open(1) or not segment.can_hold(header, last_offset)
        ):
            return self._roll(now_ms)
        return segment  # even if it should be rolled, while there is no descriptor for the next

    def _check_writable(self) -> None:
        """Raises the `failure`; fails if the log is being changed."""
        if self.failure is not None:
            raise self.failure
        assert self._change is None, f"{self.name} is being cut or replaced"

    def roll(self, now_ms: int | None = None) -> None:
        """Closes the active segment and begins the next; does nothing while it is empty.

        Nor without a descriptor for the next one.
        """
        if self._segments.active.size and self._fs.can_open(1):
            self._roll(self._latest_ms if now_ms is None else now_ms)

    def roll_if_idle(self, now_ms: int) -> bool:
        """Closes the active segment if nothing was appended for `segment.ms`, so that it can be compacted.

        `now_ms` is the data directory's clock. Returns whether it did.
        """
        due_ms, count = self.idle_roll_ms, len(self._segments)
        if due_ms is None or now_ms < due_ms:
            return False
        self.roll(now_ms)
        return len(self._segments) > count

    @property
    def idle_roll_ms(self) -> int | None:
        """The time from which on `roll_if_idle` closes the active segment; None: never as it is now."""
        if self.config.roll_ms is None or not self._segments.active.size:
            return None
        return self._latest_ms + self.config.roll_ms + 1

    def _roll(self, now_ms: int) -> Segment:
        """Begins a segment. Its producer snapshot is taken now, and written by the next flush.

        1. Create the `.log` file, empty. Crash: an empty last segment, which is valid.
        2. Publish in memory. The flush does the rest (`pending_flush.py`).
        """
        base_offset = self.log_end_offset
        snapshot = partial(encode_snapshot, base_offset, self.producers.freeze())
        segment = Segment.create(self._fs, self.directory, base_offset, self.config, now_ms)
        self._segments.active.indexes.seal()
        self._segments.add(segment)
        self._durability.add_snapshot(base_offset, snapshot)
        self._durability.note_new_segment()
        return segment

    # Reading

    def read(self, offset: int, bytes_max: int, end_offset: int) -> bytes:
        """Reads whole batches from the one that holds `offset` on, all below `end_offset`.

        At most `bytes_max` bytes, but at least one batch if there is one; never beyond the end of a
        segment. Raises `KafkaError` OFFSET_OUT_OF_RANGE outside the log.
        """
        segment = self._segments.active
        if segment.base_offset <= offset < min(end_offset, self.log_end_offset) and (
            self.log_start_offset <= offset
        ):
            return segment.read(offset, bytes_max, end_offset)  # as nearly every consumer asks
        return self._read(offset, bytes_max, self.log_start_offset, end_offset)

    def aborted_transactions(self, start: int, end: int) -> list[ClosedTransaction]:
        """The aborted transactions that overlap the offsets from `start` up to `end`, in the order of their markers.

        Each has its marker at or after `start`, and a first offset below `end`.
        """
        found: list[ClosedTransaction] = []
        for segment in self._segments.aborting_from(start):
            ranges = segment.indexes.aborted.find(start, end)
            found += ranges.transactions
            if ranges.is_complete:
                break
        return found

    def aborted_in(self, records: Buffer, end_offset: int) -> list[tuple[int, int]]:
        """Producer id and first offset of the aborted transactions that may have batches in what was read.

        `records` are whole batches below `end_offset`, as `read` returned them.
        """
        if not self._segments.aborting:
            return []
        start = read_header(records).base_offset
        beyond = None
        if not self.config.is_compacted:  # else some of what lies between was left out
            indexes = self._segments.holding(start).indexes
            beyond = indexes.offsets.offset_beyond(start, len(records))
        if beyond is None:
            beyond = self._segments.base_after(start)
        end_offset = end_offset if beyond is None else min(beyond, end_offset)
        return [one[:2] for one in self.aborted_transactions(start, end_offset)]

    def pass_empty(self, offset: int, end_offset: int) -> Passed:
        """Looks for the first batch with records from `offset` on, which `read` has found to be in the log."""
        from echoless.storage.empty_batches import pass_empty  # noqa: PLC0415 - the first fetch

        return pass_empty(self._segments, offset, end_offset)

    def read_for_replica(self, offset: int, bytes_max: int) -> bytes:
        """Reads as `read` does, but from `first_offset` on and up to the end of the log.

        Replicas also copy deleted records that are still in the first segment, so that their logs
        begin at a batch boundary.
        """
        return self._read(offset, bytes_max, self.first_offset, self.log_end_offset)

    def _read(self, offset: int, bytes_max: int, start_offset: int, end_offset: int) -> bytes:
        if not start_offset <= offset <= self.log_end_offset:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"offset {offset} of {self.name} is not in {start_offset}..{self.log_end_offset}",
            )
        if offset >= end_offset or offset == self.log_end_offset:
            return b""
        segment = self._segments.active
        if offset < segment.base_offset:
            segment = self._segments.for_reading(offset)
        return segment.read(offset, bytes_max, end_offset)

    def producer_snapshot_chunk(
        self, offset: int | None, position: int, bytes_max: int
    ) -> SnapshotChunk:
        """Reads some bytes of the producer state that a new replica begins with; see `reset_to`.

        `offset` None: of the newest snapshot at or below the log start; the answer names its offset.
        Raises `KafkaError` OFFSET_OUT_OF_RANGE if the snapshot of `offset` is gone.
        """
        from echoless.storage.producers.snapshot_chunk import (  # noqa: PLC0415 - a new replica
            read_chunk,
            starting_snapshot,
        )

        first, last = self.first_offset, self.log_start_offset
        if offset is None:
            offset = starting_snapshot(self._fs, self.directory, self.config, first, last)
        elif not first <= offset <= last:
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, f"nothing begins at offset {offset}")
        return read_chunk(self._fs, self.directory, offset, position, bytes_max)

    def offset_at_timestamp(self, timestamp_ms: int) -> LookUp:
        """Looks for the first record at least as new as `timestamp_ms`; see `time_lookup.py`."""
        from echoless.storage.time_lookup import find_timestamp  # noqa: PLC0415 - the first ListOffsets by time

        return find_timestamp(self._segments, timestamp_ms, self.log_start_offset)

    def max_timestamp(self) -> LookUp:
        """Looks for the newest record; `(-1, -1)` without one."""
        from echoless.storage.time_lookup import find_max_timestamp  # noqa: PLC0415 - see above

        return find_max_timestamp(self._segments, self.log_start_offset)

    def closed_segments(self) -> list[ClosedSegment]:
        """The closed segments below the recovery point, for the scrubber."""
        return [
            ClosedSegment(segment.file.path, segment.base_offset, segment.next_offset, segment.size)
            for segment in self._segments.closed
            if segment.next_offset <= self.recovery_point
        ]

    # Flushing

    def flush(self) -> None:
        """Syncs everything appended so far; the recovery point moves to the end of the log."""
        self._durability.cancel_flush()
        pending = self.start_flush()
        try:
            pending.run()
        finally:
            self.finish_flush(pending)

    @property
    def awaits_flush(self) -> bool:
        """Whether records or a producer snapshot are not on disk yet, so a flush would change something."""
        return self.recovery_point < self.log_end_offset or self._durability.has_unwritten_snapshots

    def start_flush(self) -> PendingFlush:
        """Returns the work that `flush` does, to be run in any thread; see `pending_flush.py`.

        One at a time: `finish_flush` comes before the next, even if `run` failed.
        """
        self._check_writable()
        return self._durability.start_flush(self._segments, self.log_end_offset)

    def finish_flush(self, pending: PendingFlush) -> None:
        """Publishes what `pending.run` did, or notes that it failed or was cancelled."""
        self._durability.finish_flush(pending)
        self.note_change()

    def note_change(self) -> None:
        """Has the next round of housekeeping look at this log.

        To be called where a due time does not tell: the offsets in the checkpoints have moved, or something may go
        that could not go before.
        """
        self._kept.changed()

    def note_committed(self, high_watermark: int) -> None:
        """Notes that the high watermark has moved, as `note_change`; transactions that ended below it hold no one back."""
        if self.producers.has_transactions:
            self.producers.note_committed(high_watermark)
        self._kept.changed()

    # Cutting

    def truncate_to(self, offset: int) -> None:
        """Cuts off the batch that holds `offset`, or the next one, and all after it, durably."""
        change = self.start_truncation(offset)
        if change is not None:
            self._complete(change)

    def start_truncation(self, offset: int) -> PendingChange[ProducerStates] | None:
        """Returns the work that `truncate_to` does; None if there was no batch to cut, and it is done.

        Not below `first_offset`: the producer state as of any earlier offset is not known, so only
        `reset_to` can go there. `truncation.py` has the steps, `pending_change.py` the rest.
        """
        from echoless.storage.truncation import Truncation  # noqa: PLC0415 - no broker that is alone cuts a log

        assert offset >= self.first_offset, (
            f"cut at {offset}, the log begins at {self.first_offset}"
        )
        self._check_writable()
        if offset >= self.log_end_offset:
            # Even without a cut: a leader that appended nothing in its epoch leaves an epoch to drop.
            self.leader_epochs.truncate_from_end(self.log_end_offset)
            return None
        self._end_swap()
        # A log never ends inside a batch, nor in a hole: a restart would find it shorter.
        end = self._segments.holding(offset).end_below(offset)
        is_above = end < max(self.recovery_point, self.log_start_offset)
        truncation = Truncation(
            directory=self.directory,
            offset=end,
            segments=self._segments,
            doomed=self._segments.pop_above(end),
            removal=self._old_segments.pending,
            lowered=self._kept if is_above else None,
            producers=self._no_producers(),
            now_ms=self._latest_ms,
            fs=self._fs,
        )
        return self._start(
            PendingChange(
                truncation.carry_out,
                partial(self._end_at, end),
                flush=self._durability.disown_flush(),
                discard=truncation.discard,
            )
        )

    def _end_at(self, offset: int, producers: ProducerStates) -> None:
        self.log_end_offset = offset
        self.log_start_offset = min(self.log_start_offset, offset)
        self._durability.end_at(offset)
        self.compaction.end_at(offset)
        self.leader_epochs.truncate_from_end(offset)
        self._replace_producers(producers)

    def reset_to(self, offset: int, snapshot: Buffer, *, clock_ahead_ms: int, now_ms: int) -> None:
        """Replaces the log by an empty one that begins at `offset`, with a leader's producer state.

        `snapshot` is the leader's `producer_snapshot_chunk`s joined together, `clock_ahead_ms` this
        broker's clock minus the leader's: no producer expires earlier here than there. Raises
        `SnapshotError`, with nothing changed, if the snapshot is damaged or of another offset.

        `replacement.py` has the steps. A crash leaves the old log or the new one.
        """
        self._complete(
            self.start_replacement(offset, snapshot, clock_ahead_ms=clock_ahead_ms, now_ms=now_ms)
        )

    def start_replacement(
        self, offset: int, snapshot: Buffer, *, clock_ahead_ms: int, now_ms: int
    ) -> PendingChange[NewLog]:
        """Returns the work that `reset_to` does; see `pending_change.py`."""
        from echoless.storage.replacement import Replacement  # noqa: PLC0415 - see `start_truncation`

        self._check_writable()
        self._end_swap()
        replacement = Replacement(
            directory=self.directory,
            offset=offset,
            snapshot=snapshot,
            clock_ahead_ms=clock_ahead_ms,
            removal=self._old_segments.pending,
            make_name_durable=self._durability.make_name_durable,
            kept=self._kept,
            config=self.config,
            producers=self._no_producers(),
            now_ms=now_ms,
            fs=self._fs,
        )
        return self._start(
            PendingChange(
                replacement.carry_out,
                partial(self._begin_at, offset, now_ms),
                flush=self._durability.disown_flush(),
                discard=replacement.discard,
            )
        )

    def _begin_at(self, offset: int, now_ms: int, new: NewLog) -> None:
        for replaced in self._segments:
            replaced.close()
        self._segments.begin_with(new.segment)
        self._old_segments.forget_reasons()
        self._durability.begin_at(offset)
        self.compaction.begin_at(offset)
        self.leader_epochs.clear()
        self.log_start_offset = self.log_end_offset = offset
        self._latest_ms = max(self._latest_ms, now_ms)
        self._replace_producers(new.producers)

    def _end_swap(self) -> None:
        """Returns when compaction changes no files; its passes are stale. Raises the `failure`."""
        swap = self.compaction.end_swap()
        if swap is not None:
            self._note_swap(swap)
            self._check_writable()

    def finish_swap(self, swap: PendingSwap) -> None:
        """Publishes what `swap.run` did; the log is disabled if that failed half-way."""
        self.compaction.finish_swap(swap)
        self._note_swap(swap)

    def note_pass(self, report: CleaningReport) -> None:
        """Notes how far a pass of compaction has come, unless it is stale."""
        self.compaction.note_pass(report)
        self.note_change()

    def _note_swap(self, swap: PendingSwap) -> None:
        self._old_segments.has_left_snapshots |= swap.is_done and len(swap.sources) > 1
        self.note_change()
        if swap.error is not None and self.failure is None:
            self.failure = swap.error
            self._is_writable = False

    def _start(self, change: PendingChange[_Result]) -> PendingChange[_Result]:
        self._kept.hold()
        self._change, self._is_writable = change, False
        return change

    def _complete(self, change: PendingChange[Any]) -> None:
        try:
            change.run()
        finally:
            self.finish_change(change)

    def finish_change(self, change: PendingChange[Any]) -> None:
        """Publishes what `change.run` did, if it has ended well.

        After a `StorageError` the log is disabled, since memory and disk may disagree.
        """
        if change is not self._change:
            return
        removal = self._old_segments.pending
        if removal is not None:
            self._old_segments.finish_removal(removal)
        change.publish()
        self._change = None
        if isinstance(change.error, StorageError):
            self.failure = change.error
            return
        self._kept.release()
        self._is_writable = True
        self.note_change()

    def _no_producers(self) -> ProducerStates:
        """An empty state, for the producers of the log as it will be."""
        config = self.config
        return ProducerStates(
            config.window,
            config.producer_id_expiration_ms,
            config.producers_max,
            config.leased_producer_expiration_ms,
            is_fair=config.producers_fair,
            forgotten_max=config.forgotten_max,
        )

    def _replace_producers(self, producers: ProducerStates) -> None:
        producers.expired_total += self.producers.expired_total
        producers.evicted_total += self.producers.evicted_total
        self.producers = producers
        self.reconfigure(self.config)  # it may have changed meanwhile

    # Deleting

    def advance_log_start(self, offset: int) -> None:
        """Makes records below `offset` unreadable (DeleteRecords); their producers stay known.

        The files may go with the next `start_removal`, once the broker has checkpointed the new start.
        Raises `KafkaError` OFFSET_OUT_OF_RANGE beyond the end.
        """
        if offset > self.log_end_offset:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"offset {offset} of {self.name} is beyond the end, {self.log_end_offset}",
            )
        # Leader epochs stay as long as the batches: replicas go on copying and comparing them.
        self.log_start_offset = max(self.log_start_offset, offset)
        self.note_change()

    def delete_old_segments(self, now_ms: int, high_watermark: int | None = None) -> int:
        """`retire_old_segments`, then removes what may go by now; returns how many segments went."""
        self.retire_old_segments(now_ms, high_watermark)
        pending = self.start_removal(high_watermark)
        if pending is None:
            return 0
        self._old_segments.complete_removal()
        return len(pending.reasons)

    def retire_old_segments(self, now_ms: int, high_watermark: int | None = None) -> None:
        """Moves the log start above the segments that retention no longer keeps, in memory.

        `now_ms` is the wall-clock time, which retention compares with record timestamps. A segment
        goes only if it is flushed and below `high_watermark` (unless None), and only if the producer
        snapshot at its end is on disk. If the active segment has expired, it is rolled, and goes the
        next time. The files go with `start_removal`, once the new log start is on disk: a start
        refuses a log whose segments above that are missing. Nothing goes while the log is changing, nor
        while a swap of compaction runs, because the files whose age counts are going then.
        """
        if self._change is not None or self.compaction.is_swapping:
            return
        reasons = retention.find_expired(
            self._fs, self._segments, self.log_start_offset, self.config, now_ms
        )
        if len(reasons) == len(self._segments):
            self.roll()
        start = self._old_segments.retire(reasons, high_watermark)
        if start > self.log_start_offset:
            self.advance_log_start(start)

    @property
    def next_expiry_ms(self) -> int | None:
        """The wall-clock time at which `retention.ms` gives up the oldest segment; None: never as it is now.

        Nor while the log is changing, after which it is to be looked at again.
        """
        if self._change is not None or self.compaction.is_swapping:
            return None
        return retention.next_expiry_ms(self._fs, self._segments, self.config)

    def start_removal(self, high_watermark: int | None = None) -> PendingSegmentRemoval | None:
        """Takes the segments below the log start on disk out of the log; `run` removes their files.

        With them go producer snapshots that nothing needs, also those of segments that compaction has merged. None if there
        is nothing to remove, or the log is changing. `finish_removal` comes next; a removal that failed for want
        of descriptors is returned again. See `pending_segment_removal.py`.
        """
        if self._change is not None or self.compaction.is_swapping:
            return None
        if self.failure is not None:
            return self._old_segments.pending
        pending = self._old_segments.start_removal(self.log_start_offset, high_watermark)
        if pending is not None:
            self.note_change()  # there may be more to remove, and what fails is tried again
        return pending

    def finish_removal(self, pending: PendingSegmentRemoval) -> None:
        """Notes what `pending.run` did, or that it has to run again."""
        self._old_segments.finish_removal(pending)

    def expire_producers(self, now_ms: int) -> int:
        """Forgets producers that have appended nothing for too long; returns how many.

        At most `EXPIRED_AT_ONCE_MAX`, a few ms; 0 if none is left, or the log is changing.
        """
        if self._change is not None:
            return 0
        return self.producers.expire(now_ms, EXPIRED_AT_ONCE_MAX)

    def reconfigure(self, config: LogConfig) -> None:
        """Applies `config` from now on; the index interval from the next segment on."""
        self.config = config
        self.producers.reconfigure(
            window=config.window,
            expiration_ms=config.producer_id_expiration_ms,
            producers_max=config.producers_max,
            leased_expiration_ms=config.leased_producer_expiration_ms,
            forgotten_max=config.forgotten_max,
        )
        self._set_rules()
        self.note_change()

    def close(self) -> None:
        """Flushes everything, including indexes and a producer snapshot, and closes the files.

        A log that has failed is only closed. Raises `StorageError`; the shutdown is not clean then.
        """
        pending = self.start_close()
        try:
            if pending is not None:
                pending.run()
        finally:
            self.finish_close(pending)

    def start_close(self) -> PendingFlush | None:
        """Returns the last flush, to be run in any thread; `finish_close` is next, even if it failed.

        None if nothing has happened since a clean opening. A change that is under way is completed first.
        """
        if self._change is not None:
            self._complete(self._change)
        swap = self.compaction.end_swap()
        if swap is not None:
            self._note_swap(swap)
        self._durability.cancel_flush()
        self._old_segments.cancel_removal()
        end, loaded = self.log_end_offset, self.recovery.snapshot_offset
        if self.failure is not None or self._durability.is_saved(self._segments, end, loaded):
            return None
        self._durability.add_snapshot(end, partial(encode_snapshot, end, self.producers.freeze()))
        return self._durability.start_last_flush(self._segments, end)

    def finish_close(self, pending: PendingFlush | None) -> int:
        """Closes the files; returns how many producer snapshots were removed. Raises `StorageError`."""
        needless: list[int] = []
        try:
            if pending is not None:
                self.finish_flush(pending)
                if pending.is_done:
                    needless = self._old_segments.needless_snapshots(self.log_start_offset)
                    remove_snapshots(self._fs, self.directory, needless)
            return len(needless)
        finally:
            for segment in self._segments:
                segment.close()

    def abandon(self) -> None:
        """Closes the files without a flush: the log is about to be removed. From any thread."""
        change = self._change
        if change is not None:
            change.cancel()
        self._durability.abandon_flush()
        self.compaction.abandon_swap()
        self._old_segments.cancel_removal()
        for segment in self._segments:
            segment.close()


def _too_large(header: BatchHeader, config: LogConfig) -> KafkaError:
    return KafkaError(
        ErrorCode.RECORD_LIST_TOO_LARGE,
        f"the batch takes {header.size} bytes, a segment holds {config.segment_bytes}",
    )
