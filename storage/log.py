"""One partition's log: batches in segments, and the producer state that goes with them.

Appending is two-phase: judge the batch on what is known, write its bytes, publish. Before the write
succeeded nothing that a reader or the next batch can see has changed; after it nothing can fail.

Invariant: `log_start_offset <= log_end_offset`, and `recovery_point <= log_end_offset`.
Invariant: the producer state is that of all batches below `log_end_offset`.
Invariant: everything below `recovery_point` has been synced.
Invariant: no segment is removed above the log start on disk, so a start misses those that are gone.
Invariant: once segments were deleted, the producer state as of the first base offset is on disk.

Times are the data directory's own clock (`clock_checkpoint.py`), which nobody sets, so that no step
of the wall clock makes a producer idle. The time of day stamps and deletes records, nothing else.

Single owner: every method is called from one thread; only `PendingFlush.run` and
`PendingSegmentRemoval.run` may run in another.
Called by the broker's partitions and `log_directory.py`. Knows nothing of leaders, followers and
the high watermark beyond what it is told.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from typing import Final, NamedTuple

from protocol.dedup import Append as AppendDecision
from protocol.dedup import Duplicate, PartitionRules, Reject, commit, decide
from protocol.errors import ErrorCode, KafkaError
from protocol.record_batch import (
    LOG_OVERHEAD,
    MAGIC_POSITION,
    BatchHeader,
    Buffer,
    leader_stamp,
    read_header,
    with_log_append_time,
)
from storage import paths, replacement, retention
from storage.durability import Durability
from storage.file_system import FileSystem, StorageError
from storage.kept_offsets import KeptOffsets
from storage.log_config import LogConfig
from storage.pending_flush import PendingFlush
from storage.pending_segment_removal import PendingSegmentRemoval
from storage.producers.replay import (
    load_snapshot,
    remove_snapshots,
    replay_batch,
    replay_segments,
    snapshot_offsets,
)
from storage.producers.snapshot import (
    SnapshotError,
    decode_snapshot,
    encode_snapshot,
    shift_times,
)
from storage.producers.snapshot_chunk import SnapshotChunk, read_chunk, starting_snapshot
from storage.recovery import Opening, Recovered, begin, recover
from storage.replicated_batches import check_batches, count_run
from storage.scrub import ClosedSegment
from storage.segment import Segment
from storage.segments import Segments
from storage.time_lookup import LookUp, find_max_timestamp, find_timestamp

EXPIRED_AT_ONCE_MAX: Final = 10_000


class ReplicatedAppend(NamedTuple):
    """What a follower took from its leader."""

    last_offset: int
    """The last offset of the log, also where there was nothing to take."""
    epochs_moved_back: int
    """Batches that took their producer to an older epoch, as a leader never does. To be logged."""


class Appended(NamedTuple):
    """Where a batch was written. `log_append_time` is -1 on topics with create time."""

    base_offset: int
    last_offset: int
    timestamp: int
    """The batch's max timestamp, as stored."""
    log_append_time: int


class Log:
    """The log in one partition directory."""

    def __init__(
        self,
        opening: Opening,
        recovered: Recovered,
        make_name_durable: Callable[[], None] | None,
    ) -> None:
        """Use `Log.open`."""
        self.directory = opening.directory
        self.config = opening.config
        self.recovery = recovered.report
        self.producers = recovered.producers
        self.leader_epochs = recovered.leader_epochs
        self.log_start_offset = recovered.log_start_offset
        self.log_end_offset = recovered.segments.active.next_offset
        self.failure: StorageError | None = None
        """Why the log takes no more batches: a procedure that it could not finish."""
        self._fs = opening.fs
        self._segments = recovered.segments
        self._durability = Durability(
            opening.fs,
            opening.directory,
            recovery_point=recovered.recovery_point,
            snapshots=recovered.snapshots,
            leader_epochs=recovered.leader_epochs,
            lower_on_disk=opening.kept.lower,
            make_name_durable=make_name_durable,
        )
        self._kept = opening.kept
        self._reasons: dict[int, retention.Reason] = {}
        """Why segments, by base offset, were given up, until they are removed."""
        self._removal: PendingSegmentRemoval | None = None
        self._latest_ms = opening.now_ms
        """The latest time that the log was told: no batch was appended after it."""
        self._set_rules()

    @classmethod
    def open(
        cls,
        directory: str,
        config: LogConfig,
        *,
        fs: FileSystem,
        now_ms: int,
        recovery_point: int = 0,
        log_start_offset: int = 0,
        clean: bool = False,
        is_committed: bool = False,
        is_tail_safe: bool = False,
        is_start_known: bool = False,
        is_new: bool = False,
        kept: KeptOffsets | None = None,
        make_name_durable: Callable[[], None] | None = None,
    ) -> Log:
        """Opens or creates the log in an existing directory; see `recovery.py`.

        `kept` is where the log's offsets are kept on disk; `is_start_known` says that the log start
        is from there. `make_name_durable` is for a directory that a power failure would take; the
        first flush calls it, in its thread. `is_new`: no log was ever in the directory. Raises
        `StorageError`, `CorruptLogError`.
        """
        opening = Opening(
            directory=directory,
            config=config,
            fs=fs,
            now_ms=now_ms,
            recovery_point=recovery_point,
            log_start_offset=log_start_offset,
            clean=clean,
            is_committed=is_committed,
            is_tail_safe=is_tail_safe,
            is_start_known=is_start_known,
            kept=kept or KeptOffsets(),
        )
        recovered = begin(opening) if is_new else recover(opening)
        return cls(opening, recovered, make_name_durable)

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
        """Where the first segment begins: at or below the log start."""
        return self._segments.first.base_offset

    @property
    def size_bytes(self) -> int:
        return self._segments.size_bytes

    @property
    def segment_count(self) -> int:
        return len(self._segments)

    def _set_rules(self) -> None:
        self._rules = PartitionRules(self.log_end_offset > 0, self.config.unknown_producer_id)

    # Appending

    def append(
        self,
        batch: Buffer,
        header: BatchHeader,
        leader_epoch: int,
        now_ms: int,
        log_append_ms: int | None = None,
    ) -> Appended | Duplicate | Reject:
        """Takes one validated client batch; `batch` is not kept.

        `log_append_ms` is the time of day that LogAppendTime stamps, `now_ms` where none is given.
        Raises `KafkaError` RECORD_LIST_TOO_LARGE for a batch that fits no segment, `StorageError`
        where the disk fails; the log is then what it was.
        """
        config = self.config
        if header.batch_length + LOG_OVERHEAD > config.segment_bytes:
            raise _too_large(header, config)
        entry = None
        has_producer_id = header.producer_id >= 0
        if has_producer_id:
            entry = self.producers.get(header.producer_id)
            decision = decide(entry, header, self._rules)
            if not isinstance(decision, AppendDecision):
                return decision
        log_append_time = -1
        if config.log_append_time:
            log_append_time = now_ms if log_append_ms is None else log_append_ms
            batch = with_log_append_time(batch, header, log_append_time)
            header = read_header(batch)
        base_offset = self.log_end_offset
        last_offset = base_offset + header.last_offset_delta
        segment = self._writable(header, last_offset, leader_epoch, now_ms)
        stamp = leader_stamp(header, base_offset, leader_epoch)
        segment.append((stamp, memoryview(batch)[MAGIC_POSITION:]), header, last_offset)
        # Written; from here on nothing can fail.
        self.log_end_offset = last_offset + 1
        self._latest_ms = max(self._latest_ms, now_ms)
        if not base_offset:
            self._set_rules()
        if has_producer_id:
            self.producers.put(
                header.producer_id, commit(entry, header, base_offset, now_ms, config.window)
            )
        return Appended(base_offset, last_offset, header.max_timestamp, log_append_time)

    def append_replicated(self, batches: Buffer, now_ms: int) -> ReplicatedAppend:
        """Takes whole batches from the leader as they are; they have been decided there.

        Raises `DecodeError`, nothing having been written, unless the CRCs match, the offsets
        continue this log without a gap and leader epochs never fall. A `StorageError` may leave
        some of the batches appended.
        """
        view = memoryview(batches)
        placed = check_batches(view, self.log_end_offset, self.leader_epochs.latest_epoch)
        epochs_moved_back = 0
        while placed:
            first = placed[0].header
            segment = self._writable(first, first.last_offset, first.partition_leader_epoch, now_ms)
            count = count_run(placed, segment, now_ms, self.config)
            start, end = placed[0].position, placed[count - 1].end_position
            headers = [header for _, header in placed[:count]]
            epochs_moved_back += self._append_run(segment, view[start:end], headers, now_ms)
            placed = placed[count:]
        self._set_rules()
        return ReplicatedAppend(self.log_end_offset - 1, epochs_moved_back)

    def _append_run(
        self, segment: Segment, batches: Buffer, headers: list[BatchHeader], now_ms: int
    ) -> int:
        """Writes batches into the segment; returns how many epochs moved back."""
        segment.append_run(batches, headers)
        # Written; from here on nothing can fail.
        self.log_end_offset = headers[-1].next_offset
        self._latest_ms = max(self._latest_ms, now_ms)
        return sum(replay_batch(self.producers, header, now_ms) for header in headers)

    def _writable(
        self, header: BatchHeader, last_offset: int, leader_epoch: int, now_ms: int
    ) -> Segment:
        """The segment that takes the batch, after rolling and noting the epoch where needed."""
        if self.failure is not None:
            raise self.failure
        latest_epoch = self.leader_epochs.latest_epoch
        if leader_epoch != latest_epoch:
            assert leader_epoch > latest_epoch, f"leader epoch {leader_epoch} after {latest_epoch}"
            self.leader_epochs.assign(leader_epoch, self.log_end_offset)
        segment = self._segments.active
        if segment.must_roll(header, last_offset, now_ms, self.config) and (
            self._fs.can_open(1) or not segment.can_hold(header, last_offset)
        ):
            return self._roll(now_ms)
        return segment  # also where it should be closed, and there is no descriptor for the next

    def roll(self, now_ms: int | None = None) -> None:
        """Closes the written segment and begins the next; nothing while it is empty.

        Without a descriptor for the next one it stays as it is, too.
        """
        if self._segments.active.size and self._fs.can_open(1):
            self._roll(self._latest_ms if now_ms is None else now_ms)

    def _roll(self, now_ms: int) -> Segment:
        """Begins a segment. Its producer snapshot is taken now and written by the next flush.

        1. Create the `.log` file, empty. Crash: an empty last segment, which is fine.
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
        """Whole batches from the one that holds `offset` on, all below `end_offset`.

        At most `bytes_max` bytes, but at least one batch where there is one; never beyond the end
        of a segment. Raises `KafkaError` OFFSET_OUT_OF_RANGE outside the log.
        """
        return self._read(offset, bytes_max, self.log_start_offset, end_offset)

    def read_for_replica(self, offset: int, bytes_max: int) -> bytes:
        """As `read`, up to the log's end and from `first_offset` on.

        Replicas copy what has been deleted but still lies in the first segment, so that their logs
        begin at the end of a batch.
        """
        return self._read(offset, bytes_max, self.first_offset, self.log_end_offset)

    def _read(self, offset: int, bytes_max: int, start_offset: int, end_offset: int) -> bytes:
        if not start_offset <= offset <= self.log_end_offset:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"offset {offset} of {self.name} is not in {start_offset}..{self.log_end_offset}",
            )
        if offset >= min(end_offset, self.log_end_offset):
            return b""
        return self._segments.for_reading(offset).read(offset, bytes_max, end_offset)

    def producer_snapshot_chunk(
        self, offset: int | None, position: int, bytes_max: int
    ) -> SnapshotChunk:
        """Some bytes of the producer state that a new replica begins with; see `start_anew_at`.

        `offset` None: of the newest snapshot at or below the log start, which the answer names.
        Raises `KafkaError` OFFSET_OUT_OF_RANGE where the snapshot of `offset` is gone.
        """
        first, last = self.first_offset, self.log_start_offset
        if offset is None:
            offset = starting_snapshot(self._fs, self.directory, self.config, first, last)
        elif not first <= offset <= last:
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, f"nothing begins at offset {offset}")
        return read_chunk(self._fs, self.directory, offset, position, bytes_max)

    def offset_at_timestamp(self, timestamp_ms: int) -> LookUp:
        """Looks for the first record at least as new as `timestamp_ms`; see `time_lookup.py`."""
        return find_timestamp(self._segments, timestamp_ms, self.log_start_offset)

    def max_timestamp(self) -> LookUp:
        """Looks for the newest record; `(-1, -1)` without one."""
        return find_max_timestamp(self._segments, self.log_start_offset)

    def closed_segments(self) -> list[ClosedSegment]:
        """Those that are not written any more, and lie below the recovery point."""
        return [
            ClosedSegment(segment.file.path, segment.base_offset, segment.next_offset, segment.size)
            for segment in self._segments.closed
            if segment.next_offset <= self.recovery_point
        ]

    # Flushing

    def flush(self) -> None:
        """Syncs everything appended so far; the recovery point moves to the end of the log."""
        self._durability.cancel_flush()
        self._run(self.start_flush())

    def _run(self, pending: PendingFlush) -> None:
        try:
            pending.run()
        finally:
            self.finish_flush(pending)

    def start_flush(self) -> PendingFlush:
        """What `flush` would do, to be run elsewhere; see `pending_flush.py`.

        One at a time: `finish_flush` comes before the next, also where `run` failed.
        """
        if self.failure is not None:
            raise self.failure
        return self._durability.start_flush(self._segments, self.log_end_offset)

    def finish_flush(self, pending: PendingFlush) -> None:
        """Publishes what `pending.run` did, or takes note that it failed or was cancelled."""
        self._durability.finish_flush(pending)

    # Cutting

    def truncate_to(self, offset: int) -> None:
        """Cuts off the batch that holds `offset` and all behind it, durably (a follower's move).

        Not below `first_offset`: what the producers did below it is not known as of any earlier
        offset, so only `start_anew_at` can go there.

        1. Lower recovery point and log start on disk. Crash: more is scanned than needed.
        2. Remove the snapshots above the cut, durably. Crash: older ones and a replay.
        3. Remove the segments above the cut, newest first. Crash: the log ends between two.
        4. Cut the segment that holds the cut, and sync it. Crash: the log ends before or after.
        5. Cut the leader epochs in memory. Crash: opening the log cuts them to its recovery point.
        6. Load the producer state anew.
        """
        assert offset >= self.first_offset, (
            f"cut at {offset}, the log begins at {self.first_offset}"
        )
        with self._must_finish():
            if offset < self.log_end_offset:
                self._cut(self._batch_start(offset))
            # Also of a leader that appended nothing in its epoch, whose log needs no cut.
            self.leader_epochs.truncate_from_end(self.log_end_offset)

    def _cut(self, offset: int) -> None:
        self._complete_removal()
        self._durability.lower_to(offset, self.log_start_offset)
        self._remove_snapshots_above(offset)
        while self._segments.active.base_offset > offset:
            self._segments.pop_last().remove()
        self._segments.active.truncate_to(offset)
        self._fs.sync_directory(self.directory)
        self.log_end_offset = offset
        self.log_start_offset = min(self.log_start_offset, offset)
        self._set_rules()
        self._reload_producers()

    def _batch_start(self, offset: int) -> int:
        """The base offset of the batch that holds `offset`: a log never ends inside a batch."""
        placed = next(self._segments.holding(offset).headers_from(offset), None)
        return placed.header.base_offset if placed is not None else offset

    def start_anew_at(
        self, offset: int, snapshot: Buffer, *, clock_ahead_ms: int, now_ms: int
    ) -> None:
        """Replaces the log by an empty one that begins at `offset`, with a leader's producer state.

        `snapshot` is what the leader's `producer_snapshot_chunk`s make together, `clock_ahead_ms`
        this broker's clock minus the leader's: no producer expires earlier here than there. Raises
        `SnapshotError`, nothing having changed, where the snapshot is damaged or of another offset.

        `replacement.py` has the steps. A crash leaves the old log, or the new one.
        """
        data = shift_times(snapshot, clock_ahead_ms)
        decoded = decode_snapshot(data)
        if decoded.offset != offset:
            raise SnapshotError(f"it is of offset {decoded.offset}, not {offset}")
        with self._must_finish():
            self._complete_removal()
            self._durability.cancel_flush()
            self._durability.make_name_durable()
            replacement.decide(self._fs, self.directory, data)
            segment = replacement.carry_out(
                self._fs, self.directory, offset, self.config, now_ms, self._kept
            )
        for replaced in self._segments:
            replaced.close()
        self._segments = Segments([segment])
        self._reasons.clear()
        self._durability.begin_at(offset)
        self.leader_epochs.clear()
        decoded.load_into(self.producers)
        self.log_start_offset = self.log_end_offset = offset
        self._latest_ms = max(self._latest_ms, now_ms)
        self._set_rules()

    def _remove_snapshots_above(self, offset: int) -> None:
        self._durability.drop_snapshots_above(offset)
        above = [o for o in snapshot_offsets(self._fs, self.directory) if o > offset]
        remove_snapshots(self._fs, self.directory, reversed(above))
        self._fs.sync_directory(self.directory)

    def _reload_producers(self) -> None:
        end = self.log_end_offset
        snapshot_offset, _ = load_snapshot(self._fs, self.directory, self.producers, end)
        start = max(snapshot_offset or 0, self._segments.first.base_offset)
        replay_segments(self._segments, self.producers, start, end, self._latest_ms)

    @contextlib.contextmanager
    def _must_finish(self) -> Iterator[None]:
        """A procedure that fails half-way leaves memory and disk apart: nothing more is done then."""
        if self.failure is not None:
            raise self.failure
        try:
            yield
        except StorageError as error:
            self.failure = error
            raise

    # Deleting

    def advance_log_start(self, offset: int) -> None:
        """Makes records below `offset` unreadable (DeleteRecords); producers are remembered.

        The broker checkpoints the new start; then the files may go, with the next `start_removal`.
        Raises `KafkaError` OFFSET_OUT_OF_RANGE beyond the end.
        """
        if offset > self.log_end_offset:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"offset {offset} of {self.name} is beyond the end, {self.log_end_offset}",
            )
        # The leader epochs stay for as long as the batches: replicas still copy and compare them.
        self.log_start_offset = max(self.log_start_offset, offset)

    def delete_old_segments(self, now_ms: int, high_watermark: int | None = None) -> int:
        """`give_up_old_segments`, then removes what may go by now; returns how many segments went."""
        self.give_up_old_segments(now_ms, high_watermark)
        pending = self.start_removal(high_watermark)
        if pending is None:
            return 0
        self._complete_removal()
        return len(pending.reasons)

    def give_up_old_segments(self, now_ms: int, high_watermark: int | None = None) -> None:
        """Moves the log start above the segments that outlived retention, in memory.

        `now_ms` is the time of day, which retention compares with the times of records.
        Only what is flushed, and below `high_watermark` where one is given, goes; and only up to a
        base offset whose producer snapshot is on disk. A written segment that has expired is
        rolled, and goes next time. The files go with `start_removal`, once the new log start is on
        disk: a start misses what lies above that.
        """
        reasons = retention.find_expired(
            self._fs, self._segments, self.log_start_offset, self.config, now_ms
        )
        if len(reasons) == len(self._segments):
            self.roll()
        count = self._count_removable(len(reasons), high_watermark)
        bases = self._segments.base_offsets
        for base, reason in zip(bases[:count], reasons, strict=False):
            self._reasons.setdefault(base, reason)
        if count and bases[count] > self.log_start_offset:
            self.advance_log_start(bases[count])

    def start_removal(self, high_watermark: int | None = None) -> PendingSegmentRemoval | None:
        """Takes out the segments below the log start on disk, for `run` to remove their files.

        None where there is nothing to remove. `finish_removal` comes next; what failed for want of
        descriptors is given again. See `pending_segment_removal.py`.
        """
        if self._removal is not None or self.failure is not None:
            return self._removal
        limit = min(self.log_start_offset, self._kept.log_start)
        if self._segments.first.next_offset > limit:
            return None
        doomed = sum(segment.next_offset <= limit for segment in self._segments.closed)
        count = self._count_removable(doomed, high_watermark)
        if count:
            self._removal = self._take_out(count)
        return self._removal

    def _take_out(self, count: int) -> PendingSegmentRemoval:
        segments = deque(self._segments.pop_first() for _ in range(count))
        self.leader_epochs.truncate_from_start(self.first_offset)
        return PendingSegmentRemoval(
            directory=self.directory,
            segments=segments,
            reasons=[
                self._reasons.pop(segment.base_offset, retention.Reason.LOG_START)
                for segment in segments
            ],
            snapshots=self._needless_snapshots(),
            first_offset=self.first_offset,
            log_start_offset=self.log_start_offset,
            _fs=self._fs,
        )

    def finish_removal(self, pending: PendingSegmentRemoval) -> None:
        """Takes note of what `pending.run` did, or that it is to be done again."""
        if pending is self._removal and pending.is_done:
            self._removal = None

    def _complete_removal(self) -> None:
        """Returns when no removal is pending."""
        if self._removal is not None:
            self._removal.run()
            self.finish_removal(self._removal)

    def _count_removable(self, expired: int, high_watermark: int | None) -> int:
        """How many of the `expired` oldest segments can go now."""
        limit = self.recovery_point
        if high_watermark is not None:
            limit = min(limit, high_watermark)
        candidates = self._segments.base_offsets[1 : expired + 1]
        if not candidates or candidates[0] > limit:
            return 0
        saved = set(snapshot_offsets(self._fs, self.directory))
        saved -= self._durability.unwritten_snapshots
        counts = range(len(candidates), 0, -1)
        return next(
            (c for c in counts if candidates[c - 1] in saved and candidates[c - 1] <= limit), 0
        )

    def _needless_snapshots(self) -> list[int]:
        return retention.snapshots_to_remove(
            snapshot_offsets(self._fs, self.directory),
            self._segments.base_offsets,
            self.log_start_offset,
        )

    def expire_producers(self, now_ms: int) -> int:
        """Forgets some of the producers that appended nothing for too long; returns how many.

        At most `EXPIRED_AT_ONCE_MAX`, some 30 ms; 0 says that nobody is left to forget.
        """
        return self.producers.expire(now_ms, EXPIRED_AT_ONCE_MAX)

    def reconfigure(self, config: LogConfig) -> None:
        """Obeys `config` from now on; the index interval from the next segment on."""
        self.config = config
        self.producers.reconfigure(
            window=config.window,
            expiration_ms=config.producer_id_expiration_ms,
            producers_max=config.producers_max,
            leased_expiration_ms=config.leased_producer_expiration_ms,
        )
        self._set_rules()

    def close(self) -> None:
        """Flushes all, indexes and a producer snapshot included, and closes the files.

        A log that failed before is only closed. Raises `StorageError`; the shutdown is not clean
        then.
        """
        pending = self.start_close()
        try:
            if pending is not None:
                pending.run()
        finally:
            self.finish_close(pending)

    def start_close(self) -> PendingFlush | None:
        """The last flush, to be run elsewhere; `finish_close` comes next, also where it failed."""
        self._durability.cancel_flush()
        self._cancel_removal()
        if self.failure is not None or self._is_saved():
            return None
        active = self._segments.active
        active.indexes.seal()
        end = self.log_end_offset
        self._durability.add_snapshot(end, partial(encode_snapshot, end, self.producers.freeze()))
        pending = self.start_flush()
        if active.indexes.need_files:
            pending.unsaved = [*pending.unsaved, active]
        return pending

    def finish_close(self, pending: PendingFlush | None) -> None:
        """Closes the files. Raises `StorageError`."""
        try:
            if pending is not None:
                self.finish_flush(pending)
                if pending.is_done:
                    remove_snapshots(self._fs, self.directory, self._needless_snapshots())
        finally:
            for segment in self._segments:
                segment.close()

    def abandon(self) -> None:
        """Closes the files, nothing flushed: the log is about to be removed. From any thread."""
        self._durability.abandon_flush()
        self._cancel_removal()
        for segment in self._segments:
            segment.close()

    def _cancel_removal(self) -> None:
        """Returns when no removal is at work; the next start finds what it left. From any thread."""
        if self._removal is not None:
            self._removal.cancel()

    def _is_saved(self) -> bool:
        """Whether nothing happened since a clean opening: idle logs must not slow a shutdown.

        A log that holds nothing, and never did, is made again where it is lost.
        """
        active = self._segments.active.indexes
        return not self.log_end_offset or (
            self.recovery_point == self.log_end_offset == self.recovery.snapshot_offset
            and not self._durability.unwritten_snapshots
            and self.leader_epochs.unwritten(self.log_end_offset) is None
            and not any(segment.indexes.is_unsaved for segment in self._segments.closed)
            and not (active.is_unsaved and active.need_files)
        )


def _too_large(header: BatchHeader, config: LogConfig) -> KafkaError:
    return KafkaError(
        ErrorCode.RECORD_LIST_TOO_LARGE,
        f"the batch takes {header.size} bytes, a segment holds {config.segment_bytes}",
    )
