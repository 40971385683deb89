"""Opening a log: the files of a directory become a log that may be served, or are refused.

After a clean shutdown nothing is scanned: the ends of the segments are looked up, and the producer
state is loaded from the snapshot of the shutdown. If that is missing or damaged, the state is rebuilt
from the next older snapshot and the batch headers after it, or from the whole log.

After a kill or a power failure (`clean=False`) everything below the recovery point is known to be on
disk, and everything above it is read. In either case a replacement of the log, or of segments by a
compacted one, that a crash cut short is carried out first (`replacement.py`, `compaction/swap.py`).

1. Refuse a log whose first segments are missing, and remove index files without a log
   (`found_segments.py`). Crash: done again.
2. Load the newest valid snapshot at or below the first segment to be scanned; remove damaged ones.
   Crash: the same one is loaded, or an older one.
3. Scan from the segment that holds the recovery point: CRCs, and offsets that never overlap or fall.
   Rebuild indexes, leader epochs and producer state on the way. Reads only.
4. At the first damage: below the recovery point refuse the log, naming file and position. Above it log
   what will be lost, remove the later segments and cut the torn tail off, durably (`torn_tail.py`).
   Crash: the damage, or what is left of it, is found again at the same place.
5. Remove the snapshots above the end of the log, and the entries of aborted transactions, durably, before
   anything is appended there. Crash: done again, since the log still ends before them.
6. If the log start (DeleteRecords; its checkpoint outlived the tail) is above the end: write the
   producer state as a snapshot at the log start, begin a segment there, remove the others.
   Crash: the new segment does not meet the old ones, is cut by step 4, and this is done again.
7. Cut the leader epochs to the log, in memory. Crash: done again.

The recovery point does not move: what was just read may be in the page cache alone. The next flush
syncs it, and writes the indexes, the leader epochs, and the snapshots at the bases of the scanned
segments, which the flush that the crash prevented would have written.

Called by `Log.open`, which imports it with the first log that it finds; `new_log.py` begins one.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from functools import partial

from echoless.protocol.record_batch import LOG_OVERHEAD
from echoless.storage import accepted_loss, paths, replacement
from echoless.storage.compaction import swap
from echoless.storage.file_system import CorruptLogError
from echoless.storage.found_segments import open_segments
from echoless.storage.new_log import with_segments
from echoless.storage.opening import LogOpening, Recovered
from echoless.storage.producers.replay import (
    rebuild,
    remove_snapshots,
    replay_batch,
    snapshot_offsets,
)
from echoless.storage.producers.snapshot import encode_snapshot, write_snapshot
from echoless.storage.segment import Segment
from echoless.storage.segments import Segments
from echoless.storage.torn_tail import cut_tail
from echoless.storage.transaction_index_file import cut_transaction_index

logger = logging.getLogger(__name__)


def recover(opening: LogOpening) -> Recovered:
    """Opens a log that was found. Raises `CorruptLogError` if durable records are damaged or missing."""
    is_loss_accepted = accepted_loss.is_accepted(opening.fs, opening.directory)
    if is_loss_accepted:
        opening = replace(
            opening, clean=False, recovery_point=0, is_loss_accepted=True, sync_later=None
        )
    try:
        recovered = _recover(opening)
    except CorruptLogError as error:
        raise accepted_loss.with_remedy(error, opening.directory) from error
    if is_loss_accepted:
        if recovered.segments.first.base_offset > opening.log_start_offset:
            opening.kept.put_log_start(recovered.segments.first.base_offset)
        accepted_loss.withdraw(opening.fs, opening.directory)
    return recovered


def _recover(opening: LogOpening) -> Recovered:
    opening = _resume_replacement(opening)
    swap.resume(opening.fs, opening.directory, is_loss_accepted=opening.is_loss_accepted)
    recovered = with_segments(opening, open_segments(opening))
    if opening.clean:
        _trust(opening, recovered)
    else:
        _scan(opening, recovered)
    _agree_on_offsets(opening, recovered)
    return recovered


def _resume_replacement(opening: LogOpening) -> LogOpening:
    """Carries out a replacement of the log that a crash cut short."""
    try:
        start = replacement.resume(
            opening.fs, opening.directory, opening.config, opening.now_ms, opening.kept
        )
    except CorruptLogError as error:
        if not opening.is_loss_accepted:
            raise
        logger.warning("going on with what is left of the log that was being replaced: %s", error)
        opening.fs.remove(paths.join(opening.directory, paths.REPLACEMENT))
        return opening
    if start is None:
        return opening
    logger.warning(
        "%s: a crash cut its replacement by the leader's log short; it now begins at offset %d",
        opening.directory,
        start,
    )
    recovery_point = min(opening.recovery_point, start)
    return replace(opening, recovery_point=recovery_point, log_start_offset=start, clean=False)


def _trust(opening: LogOpening, recovered: Recovered) -> None:
    """Opens the log after a clean shutdown, without a scan."""
    segments = recovered.segments
    for segment in segments.closed:
        segment.check_end()
    segments.active.next_offset = segments.active.find_end()
    end = segments.active.next_offset
    if end < opening.recovery_point:
        raise _ends_too_soon(segments.active, end, opening.recovery_point)
    _load_producers(opening, recovered, end)
    recovered.recovery_point = end
    if recovered.report.batches_replayed:
        recovered.snapshots[end] = partial(encode_snapshot, end, recovered.producers.freeze())


def _ends_too_soon(last: Segment, end: int, recovery_point: int) -> CorruptLogError:
    return CorruptLogError(
        last.file.path,
        last.size,
        f"the log ends before offset {end}, though the records below {recovery_point} were safely "
        f"on disk",
    )


def _load_producers(opening: LogOpening, recovered: Recovered, end: int) -> None:
    """Rebuilds the producer state as of `end`."""
    report, segments = recovered.report, recovered.segments
    report.snapshot_offset, report.snapshots_damaged, report.batches_replayed = rebuild(
        recovered.producers, opening.fs, opening.directory, segments, end, opening.now_ms
    )
    first = segments.first.base_offset
    if (report.snapshot_offset or 0) < first:
        report.producers_forgotten = True
        recovered.producers.lose_from(0)
        logger.error(
            "%s: no producer snapshot at or below offset %d, where the log begins, can be read: producers "
            "that have appended nothing since are forgotten, and their retries would be stored twice",
            opening.directory,
            first,
        )


def _scan(opening: LogOpening, recovered: Recovered) -> None:
    """Steps 2 to 4 of the module's list."""
    segments = recovered.segments
    unsynced = _to_be_scanned(opening, segments)
    for segment in segments.closed[: len(segments) - len(unsynced)]:
        segment.check_end()
    _load_producers(opening, recovered, unsynced[0].base_offset)
    # Above the recovery point the file may be older than a truncation; the batches are right.
    recovered.leader_epochs.truncate_from_end(unsynced[0].base_offset)
    last, damage = _scan_segments(opening, recovered, unsynced)
    if last.next_offset < opening.recovery_point:
        raise damage or _ends_too_soon(last, last.next_offset, opening.recovery_point)
    if damage is not None:
        cut_tail(opening, recovered, last, damage)
    if last.next_offset > opening.recovery_point:
        # A truncation that the crash interrupted may not be on disk: what it removed must not come
        # back among the batches that are appended now.
        sync = partial(_sync, opening, recovered.segments)
        if opening.sync_later is None:
            sync()
        else:
            opening.sync_later(sync)


def _to_be_scanned(opening: LogOpening, segments: Segments) -> list[Segment]:
    """The segments from the one that holds the recovery point on.

    And the one that ends there, if it was closed and its indexes were not written since: its aborted transactions
    are known from its batches alone. A flush writes them before the producer snapshot at its end, so where that is they
    are. (Its sparse indexes say nothing: an earlier stop may have left them, or a swap of compaction removed them.)
    """
    point = opening.recovery_point
    unsynced = segments.from_offset(point)
    before = segments.closed[: len(segments) - len(unsynced)]
    if before and before[-1].next_offset == point:
        snapshot = paths.offset_file(opening.directory, point, paths.SNAPSHOT)
        if not opening.fs.exists(snapshot):
            return [before[-1], *unsynced]
    return unsynced


def _sync(opening: LogOpening, segments: Segments) -> None:
    """Makes the end of the log durable as it is now."""
    segments.active.file.sync()
    opening.fs.sync_directory(opening.directory)


def _scan_segments(
    opening: LogOpening, recovered: Recovered, unsynced: list[Segment]
) -> tuple[Segment, CorruptLogError | None]:
    """Reads segments up to the first damage; returns the last one read, and the damage in it."""
    last = unsynced[0]
    for segment in unsynced:
        if segment is not last and segment.base_offset != last.next_offset:
            gap = f"the records end before offset {last.next_offset}, not {segment.base_offset}"
            return last, CorruptLogError(last.file.path, last.size, gap)
        last = segment
        try:
            _scan_segment(opening, recovered, segment)
        except CorruptLogError as damage:
            return segment, damage
    return last, None


def _scan_segment(opening: LogOpening, recovered: Recovered, segment: Segment) -> None:
    report, epochs = recovered.report, recovered.leader_epochs
    base_offset = segment.base_offset
    if base_offset not in {report.snapshot_offset, recovered.segments.first.base_offset}:
        recovered.snapshots[base_offset] = partial(
            encode_snapshot, base_offset, recovered.producers.freeze()
        )
    latest_epoch, end = epochs.latest_epoch, base_offset
    known = segment.indexes.begin_aborted()
    for header, marker in segment.scan():
        aborted = replay_batch(recovered.producers, header, marker, opening.now_ms).aborted
        if aborted is None and report.producers_forgotten and marker is not None:
            # Where the transaction began is known from the file alone.
            aborted = next((one for one in known if one.last_offset == header.last_offset), None)
        if aborted is not None:
            recovered.segments.note_aborted(segment, aborted)
        if header.partition_leader_epoch > latest_epoch:
            latest_epoch = header.partition_leader_epoch
            epochs.assign(latest_epoch, end)  # before a hole, as when the batch was appended
        end = header.next_offset
        report.batches_scanned += 1
        report.bytes_scanned += header.batch_length + LOG_OVERHEAD


def _agree_on_offsets(opening: LogOpening, recovered: Recovered) -> None:
    """Steps 5 to 7: nothing that is kept of the log may reach beyond it."""
    fs, directory = opening.fs, opening.directory
    end = recovered.segments.active.next_offset
    stale = [offset for offset in snapshot_offsets(fs, directory) if offset > end]
    if stale:
        remove_snapshots(fs, directory, reversed(stale))
        fs.sync_directory(directory)
    if not opening.clean:
        cut_transaction_index(fs, directory, recovered.segments.active.base_offset, end)
    recovered.recovery_point = min(recovered.recovery_point, end)
    for offset in [offset for offset in recovered.snapshots if offset > end]:
        del recovered.snapshots[offset]
    if opening.log_start_offset > end:
        logger.warning(
            "%s: the log ends at offset %d, below its start %d; DeleteRecords deleted all that is left of "
            "it, so its files are removed now",
            directory,
            end,
            opening.log_start_offset,
        )
        _start_over(opening, recovered)
    first_base = recovered.segments.first.base_offset
    recovered.log_start_offset = max(opening.log_start_offset, first_base)
    recovered.leader_epochs.truncate_from_end(recovered.segments.active.next_offset)
    recovered.leader_epochs.truncate_from_start(first_base)


def _start_over(opening: LogOpening, recovered: Recovered) -> None:
    """Step 6: DeleteRecords had deleted all that survived; the log continues at its start offset."""
    fs, directory, start = opening.fs, opening.directory, opening.log_start_offset
    old = recovered.segments
    path = paths.offset_file(directory, start, paths.SNAPSHOT)
    write_snapshot(fs, path, start, recovered.producers)
    segment = Segment.create(fs, directory, start, opening.config, opening.now_ms)
    fs.sync_directory(directory)
    recovered.segments = Segments([segment])
    for removed in old:
        removed.remove()
    fs.sync_directory(directory)
