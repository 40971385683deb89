"""Opening a log: what was on disk becomes a log that may be served, or is refused.

After a clean shutdown nothing is scanned: ends of segments are looked up, and the producer state
comes from the snapshot of the shutdown. Should that be lost or damaged, it is rebuilt from the next
older one and the headers behind it, or from the whole log.

Otherwise (`clean=False`: kill -9, power failure) everything below the recovery point is known to be
on disk, and what lies behind it is read. Before that, whatever the shutdown was like, a replacement
of the log that was cut short is carried out (`replacement.py`).

1. Refuse a log whose first segment begins above the log start on disk: segments are missing, because
   retention removes only what lies below that. Then remove index files without a log: a removal of
   segments was cut short. Crash: done again.
2. Load the newest valid snapshot at or below the first segment that is to be scanned; remove
   damaged ones. Crash: the same, or an older one.
3. Scan from the segment that holds the recovery point: CRCs, offsets without gaps. Rebuild
   indexes, leader epochs and producer state on the way. Reads only.
4. At the first damage: below the recovery point refuse, naming file and position. Else say what goes,
   remove the segments behind it and cut the torn tail off, durably. Crash: the damage, or what is left
   of it, is found again at the same place.
5. Remove the snapshots of offsets that are gone, durably, before anything else is written there.
   Crash: done again, since the log still ends before them.
6. Where the log start (DeleteRecords; its checkpoint outlived the tail) lies behind the end: write
   the producer state as a snapshot at the log start, begin a segment there, remove the others.
   Crash: the new segment does not meet the old ones, is cut by step 4, and this is done again.
7. Cut the leader epochs to the log, in memory. Crash: done again.

The recovery point does not move: what was just read may still be in the page cache alone. The next
flush syncs it, writes the indexes, the leader epochs, and the snapshots at the bases of the scanned segments, which a
flush that never came should have written.

A write that a crash tore is the last of its file. So damage with whole batches behind it is refused, too,
where what was acknowledged cannot all lie below the recovery point: if each acknowledgement waited for a
sync (`log_flush=commit`), and if no power failed since everything here was written (`is_tail_safe`).
`accepted_loss.py` is how an operator lets such a log be cut all the same.

Called by `Log.open`.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field, replace
from functools import partial

from protocol.record_batch import LOG_OVERHEAD
from storage import accepted_loss, paths, replacement
from storage.checkpoints import CheckpointError
from storage.file_system import CorruptLogError, FileSystem
from storage.kept_offsets import OFFSET_MAX, KeptOffsets
from storage.leader_epochs import LeaderEpochs
from storage.log_config import LogConfig
from storage.pending_flush import Snapshot
from storage.producers.replay import (
    load_snapshot,
    remove_snapshots,
    replay_batch,
    replay_segments,
    snapshot_offsets,
)
from storage.producers.snapshot import encode_snapshot, write_snapshot
from storage.producers.state import ProducerStates
from storage.segment import Segment
from storage.segments import Segments
from storage.whole_batches import WholeBatches, whole_batches_after

logger = logging.getLogger(__name__)


@dataclass(slots=True, frozen=True, kw_only=True)
class Opening:
    """What a log is opened with."""

    directory: str
    config: LogConfig
    fs: FileSystem
    now_ms: int
    recovery_point: int
    log_start_offset: int
    clean: bool
    kept: KeptOffsets
    is_start_known: bool = False
    """A checkpoint knows the log start, and no segment above it may be missing."""
    is_committed: bool = False
    """Every acknowledged batch was synced before its acknowledgement."""
    is_tail_safe: bool = False
    """No power failed since everything here was written."""
    is_loss_accepted: bool = False


@dataclass(slots=True, kw_only=True)
class RecoveryReport:
    """What opening a log found and did. What is not as it was left is logged as it is found."""

    batches_scanned: int = 0
    bytes_scanned: int = 0
    bytes_cut: int = 0
    """Bytes of torn or unreachable batches behind the recovery point that were removed."""
    cut_reason: str = ""
    """File, position and damage; empty where nothing was cut."""
    segments_removed: int = 0
    snapshots_damaged: int = 0
    producers_forgotten: bool = False
    """Whether the producers of deleted records are not known any more."""
    snapshot_offset: int | None = None
    """Offset of the snapshot that the producer state started from."""
    batches_replayed: int = 0
    """Batches whose headers were read for the producer state alone."""

    @property
    def is_notable(self) -> bool:
        return bool(
            self.bytes_cut
            or self.segments_removed
            or self.snapshots_damaged
            or self.producers_forgotten
        )


@dataclass(slots=True, kw_only=True)
class Recovered:
    """The parts of a log that is ready to be served."""

    segments: Segments
    producers: ProducerStates
    leader_epochs: LeaderEpochs
    log_start_offset: int
    recovery_point: int
    snapshots: dict[int, Snapshot] = field(default_factory=dict)
    """Producer snapshots, by offset, that the disk may lack; the next flush writes them."""
    report: RecoveryReport = field(default_factory=RecoveryReport)


def begin(opening: Opening) -> Recovered:
    """Begins a log in a directory that was made just now: nothing is in it to be looked for."""
    segment = Segment.create(
        opening.fs, opening.directory, 0, opening.config, opening.now_ms, has_leftovers=False
    )
    return _with_segments(opening, Segments([segment]))


def recover(opening: Opening) -> Recovered:
    """Opens the log. Raises `CorruptLogError` where durable records are damaged or missing."""
    is_loss_accepted = accepted_loss.is_accepted(opening.fs, opening.directory)
    if is_loss_accepted:
        opening = replace(opening, clean=False, recovery_point=0, is_loss_accepted=True)
    try:
        recovered = _recover(opening)
    except CorruptLogError as error:
        raise accepted_loss.with_remedy(error, opening.directory) from error
    if is_loss_accepted:
        if recovered.segments.first.base_offset > opening.log_start_offset:
            opening.kept.put_log_start(recovered.segments.first.base_offset)
        accepted_loss.withdraw(opening.fs, opening.directory)
    return recovered


def _recover(opening: Opening) -> Recovered:
    opening = _resume_replacement(opening)
    recovered = _with_segments(opening, _open_segments(opening))
    if opening.clean:
        _trust(opening, recovered)
    else:
        _scan(opening, recovered)
    _agree_on_offsets(opening, recovered)
    return recovered


def _with_segments(opening: Opening, segments: Segments) -> Recovered:
    """The parts of the log before anything was read from its segments."""
    config = opening.config
    return Recovered(
        segments=segments,
        producers=ProducerStates(
            config.window,
            config.producer_id_expiration_ms,
            config.producers_max,
            config.leased_producer_expiration_ms,
        ),
        leader_epochs=_open_leader_epochs(opening),
        log_start_offset=opening.log_start_offset,
        recovery_point=opening.recovery_point,
    )


def _resume_replacement(opening: Opening) -> Opening:
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


def _open_leader_epochs(opening: Opening) -> LeaderEpochs:
    """Reads the file; a damaged one goes where the loss is accepted: all batches are scanned then."""
    path = paths.join(opening.directory, paths.LEADER_EPOCH_CHECKPOINT)
    try:
        return LeaderEpochs(opening.fs, path)
    except CheckpointError as error:
        if not opening.is_loss_accepted:
            raise CorruptLogError(path, 0, str(error).removeprefix(f"{path}: ")) from error
        logger.warning("dropping %s, to be made again from the batches: %s", path, error)
        opening.fs.remove(path)
    return LeaderEpochs(opening.fs, path)


def _open_segments(opening: Opening) -> Segments:
    """Opens every segment, each taken to end where the next begins."""
    fs, directory = opening.fs, opening.directory
    files = [file for file in map(paths.parse_offset_file, fs.list_directory(directory)) if file]
    bases = sorted(file.offset for file in files if file.suffix == paths.LOG)
    if bases:
        _check_beginning(opening, bases[0])
    for file in files:
        if file.offset not in bases and file.suffix in {paths.OFFSET_INDEX, paths.TIME_INDEX}:
            fs.remove(paths.offset_file(directory, file.offset, file.suffix))
    if not bases:
        return Segments([_first_segment(opening)])
    ends = [*bases[1:], OFFSET_MAX]
    return Segments(
        [
            Segment.open(fs, directory, base, opening.config, end)
            for base, end in zip(bases, ends, strict=True)
        ]
    )


def _check_beginning(opening: Opening, first_base: int) -> None:
    """Raises `CorruptLogError` where segments are missing that retention did not remove."""
    start = opening.log_start_offset
    if first_base <= start or not opening.is_start_known:
        return
    path = paths.offset_file(opening.directory, first_base, paths.LOG)
    reason = f"the segments before it are missing: the log began at {start}"
    if not opening.is_loss_accepted:
        raise CorruptLogError(path, 0, reason)
    logger.warning("%s: going on without what is missing: %s", path, reason)


def _first_segment(opening: Opening) -> Segment:
    start = opening.log_start_offset
    if opening.recovery_point > start:
        raise CorruptLogError(
            opening.directory,
            0,
            f"no segment is left of the records below {opening.recovery_point}",
        )
    return Segment.create(opening.fs, opening.directory, start, opening.config, opening.now_ms)


def _trust(opening: Opening, recovered: Recovered) -> None:
    """After a clean shutdown: no scan."""
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


def _load_producers(opening: Opening, recovered: Recovered, end: int) -> None:
    """The producer state as of `end`, from the newest valid snapshot and the headers behind it."""
    report, segments = recovered.report, recovered.segments
    report.snapshot_offset, report.snapshots_damaged = load_snapshot(
        opening.fs, opening.directory, recovered.producers, end
    )
    first = segments.first.base_offset
    if (report.snapshot_offset or 0) < first:
        report.producers_forgotten = True
        logger.error(
            "%s: no producer snapshot at or below offset %d, where the log begins, can be read: producers "
            "that appended nothing since are forgotten, and a repeat of theirs would be stored twice",
            opening.directory,
            first,
        )
    start = max(report.snapshot_offset or 0, first)
    if start < end:
        report.batches_replayed = replay_segments(
            segments, recovered.producers, start, end, opening.now_ms
        )


def _scan(opening: Opening, recovered: Recovered) -> None:
    """Steps 2 to 4 of the module's list."""
    segments = recovered.segments
    behind = segments.from_offset(opening.recovery_point)
    for segment in segments.closed[: len(segments) - len(behind)]:
        segment.check_end()
    _load_producers(opening, recovered, behind[0].base_offset)
    # Above the recovery point the file may be older than a cut; the batches know.
    recovered.leader_epochs.truncate_from_end(behind[0].base_offset)
    last, damage = _scan_segments(opening, recovered, behind)
    if last.next_offset < opening.recovery_point:
        raise damage or _ends_too_soon(last, last.next_offset, opening.recovery_point)
    if damage is not None:
        _cut(opening, recovered, last, damage)
    if last.next_offset > opening.recovery_point:
        # A cut that the crash interrupted may not be on disk: what it removed must not come back
        # among the batches that are appended now.
        last.file.sync()
        opening.fs.sync_directory(opening.directory)


def _scan_segments(
    opening: Opening, recovered: Recovered, behind: list[Segment]
) -> tuple[Segment, CorruptLogError | None]:
    """Reads segments up to the first damage; returns the last that is good, and the damage in it."""
    last = behind[0]
    for segment in behind:
        if segment is not last and segment.base_offset != last.next_offset:
            gap = f"the records end before offset {last.next_offset}, not {segment.base_offset}"
            return last, CorruptLogError(last.file.path, last.size, gap)
        last = segment
        try:
            _scan_segment(opening, recovered, segment)
        except CorruptLogError as damage:
            return segment, damage
    return last, None


def _scan_segment(opening: Opening, recovered: Recovered, segment: Segment) -> None:
    report, epochs = recovered.report, recovered.leader_epochs
    base_offset = segment.base_offset
    if base_offset not in {report.snapshot_offset, recovered.segments.first.base_offset}:
        recovered.snapshots[base_offset] = partial(
            encode_snapshot, base_offset, recovered.producers.freeze()
        )
    latest_epoch = epochs.latest_epoch
    for _, header, _ in segment.scan():
        replay_batch(recovered.producers, header, opening.now_ms)
        if header.partition_leader_epoch > latest_epoch:
            latest_epoch = header.partition_leader_epoch
            epochs.assign(latest_epoch, header.base_offset)
        report.batches_scanned += 1
        report.bytes_scanned += header.batch_length + LOG_OVERHEAD


def _cut(opening: Opening, recovered: Recovered, last: Segment, damage: CorruptLogError) -> None:
    """Step 4: removes what lies behind the damage in `last`, newest file first."""
    report, segments = recovered.report, recovered.segments
    doomed = segments.from_offset(last.base_offset)[1:]
    same, later = _what_follows(recovered, last, doomed, damage)
    if not opening.is_loss_accepted:
        _check_is_torn(opening, damage, same, later)
    report.cut_reason = str(damage)
    report.segments_removed = len(doomed)
    report.bytes_cut = last.size - damage.position + sum(segment.size for segment in doomed)
    logger.log(
        logging.ERROR if same.count or later.count else logging.WARNING,
        "%s: cutting %d bytes from offset %d on, %d later segments with them (%s; %s): %s",
        opening.directory,
        report.bytes_cut,
        last.next_offset,
        len(doomed),
        f"in the same file {same}",
        f"in later files {later}",
        damage,
    )
    while segments.active is not last:
        segments.pop_last().remove()
    last.cut(damage.position)
    opening.fs.sync_directory(opening.directory)


def _what_follows(
    recovered: Recovered, last: Segment, doomed: list[Segment], damage: CorruptLogError
) -> tuple[WholeBatches, WholeBatches]:
    """The whole batches behind the damage, in its file and in later ones."""
    same, later = WholeBatches(), WholeBatches()
    epoch = recovered.leader_epochs.latest_epoch
    for segment in (last, *doomed):
        position = damage.position if segment is last else 0
        found = same if segment is last else later
        for placed in whole_batches_after(segment.file, position, last.next_offset, epoch):
            found.see(placed.header)
    return same, later


def _check_is_torn(
    opening: Opening, damage: CorruptLogError, same: WholeBatches, later: WholeBatches
) -> None:
    """Raises `CorruptLogError` unless a crash explains the damage.

    A power failure may take the end of one file and leave the beginning of the next.
    """
    for found, cannot_be in (
        (same, opening.is_committed or opening.is_tail_safe),
        (later, opening.is_tail_safe),
    ):
        if found.count and cannot_be:
            raise CorruptLogError(
                damage.path,
                damage.position,
                f"{damage.reason}, and {found}, some of them acknowledged: no crash does that",
            )


def _agree_on_offsets(opening: Opening, recovered: Recovered) -> None:
    """Steps 5 to 7: what else is kept of the log may not reach beyond it."""
    fs, directory = opening.fs, opening.directory
    end = recovered.segments.active.next_offset
    stale = [offset for offset in snapshot_offsets(fs, directory) if offset > end]
    if stale:
        remove_snapshots(fs, directory, reversed(stale))
        fs.sync_directory(directory)
    recovered.recovery_point = min(recovered.recovery_point, end)
    for offset in [offset for offset in recovered.snapshots if offset > end]:
        del recovered.snapshots[offset]
    if opening.log_start_offset > end:
        logger.warning(
            "%s: the log ends at offset %d, below its start %d; all that is left of it was deleted by "
            "request and goes now",
            directory,
            end,
            opening.log_start_offset,
        )
        _start_over(opening, recovered)
    first_base = recovered.segments.first.base_offset
    recovered.log_start_offset = max(opening.log_start_offset, first_base)
    recovered.leader_epochs.truncate_from_end(recovered.segments.active.next_offset)
    recovered.leader_epochs.truncate_from_start(first_base)


def _start_over(opening: Opening, recovered: Recovered) -> None:
    """Step 6: all that survived had been deleted by request; the log goes on at its start offset."""
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
