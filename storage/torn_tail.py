"""Damage above the recovery point: the torn end of the last write, or a loss that no crash explains.

A write that a crash tore is the last one of its file, and lacks bytes. So damage with whole batches after it, or in
a batch that has all its bytes (`damaged_batch.py`), is refused
if everything acknowledged cannot lie below the recovery point: if each acknowledgement waited for a
sync (`log_flush=commit`), or if the power has not failed since everything here was written
(`is_tail_safe`). `accepted_loss.py` lets an operator have such a log cut nevertheless.

Called by `recovery.py`, which finds the damage.
"""

from __future__ import annotations

import logging

from echoless.storage.damaged_batch import change_since_written
from echoless.storage.file_system import CorruptLogError
from echoless.storage.opening import LogOpening, Recovered
from echoless.storage.segment import Segment
from echoless.storage.whole_batches import WholeBatches, whole_batches_after

logger = logging.getLogger(__name__)


def cut_tail(
    opening: LogOpening, recovered: Recovered, last: Segment, damage: CorruptLogError
) -> None:
    """Cuts the log off at the damage in `last`, durably, the newest file first.

    Raises `CorruptLogError`, nothing having been cut, if no crash explains the damage.
    """
    report, segments = recovered.report, recovered.segments
    doomed = segments.from_offset(last.base_offset)[1:]
    same, later = _what_follows(recovered, last, doomed, damage)
    if not opening.is_loss_accepted:
        _check_is_torn(opening, damage, same, later)
        _check_lacks_bytes(opening, last, damage)
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
    """The whole batches after the damage, in its file and in later ones."""
    same, later = WholeBatches(), WholeBatches()
    epoch = recovered.leader_epochs.latest_epoch
    for segment in (last, *doomed):
        position = damage.position if segment is last else 0
        found = same if segment is last else later
        for placed in whole_batches_after(segment.file, position, last.next_offset, epoch):
            found.see(placed.header)
    return same, later


def _check_is_torn(
    opening: LogOpening, damage: CorruptLogError, same: WholeBatches, later: WholeBatches
) -> None:
    """Raises `CorruptLogError` unless a crash explains the damage.

    A power failure may take the end of one file and leave the beginning of the next.
    """
    for found, is_loss in (
        (same, opening.is_committed or opening.is_tail_safe),
        (later, opening.is_tail_safe),
    ):
        if found.count and is_loss:
            raise CorruptLogError(
                damage.path,
                damage.position,
                f"{damage.reason}, and {found}, some of them acknowledged: no crash does that",
            )


def _check_lacks_bytes(opening: LogOpening, last: Segment, damage: CorruptLogError) -> None:
    """Raises `CorruptLogError` if the damaged batch has all that was written, and may have been acknowledged."""
    if not (opening.is_committed or opening.is_tail_safe):
        return
    change = change_since_written(
        last.file, damage.position, may_lack_sectors=not opening.is_tail_safe
    )
    if change is not None:
        raise CorruptLogError(
            damage.path,
            damage.position,
            f"{damage.reason}, and {change}: the batch was changed after it had been written, and may have "
            f"been acknowledged",
        )
