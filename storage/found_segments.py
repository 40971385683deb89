"""The segments that opening a log finds in its directory. Called by `recovery.py`.

A log whose first segment begins above the log start on disk is refused: retention removes only what is
below the log start, so segments are missing. An index file without a log is what is left of a removal
that a crash cut short, and is removed.
"""

from __future__ import annotations

import logging

from echoless.storage import paths
from echoless.storage.file_system import CorruptLogError
from echoless.storage.kept_offsets import OFFSET_MAX
from echoless.storage.opening import LogOpening
from echoless.storage.segment import Segment
from echoless.storage.segments import Segments

logger = logging.getLogger(__name__)


def open_segments(opening: LogOpening) -> Segments:
    """Opens every segment, each assumed to end where the next begins; nothing is read yet.

    Raises `CorruptLogError` if segments are missing at the beginning.
    """
    fs, directory = opening.fs, opening.directory
    files = [file for file in map(paths.parse_offset_file, fs.list_directory(directory)) if file]
    bases = sorted(file.offset for file in files if file.suffix == paths.LOG)
    if bases:
        _check_beginning(opening, bases[0])
    for file in files:
        if file.offset not in bases and file.suffix in paths.SEGMENT_INDEXES:
            fs.remove(paths.offset_file(directory, file.offset, file.suffix))
    if not bases:
        return Segments([_first_segment(opening)])
    ends = [*bases[1:], OFFSET_MAX]
    aborting = {file.offset for file in files if file.suffix == paths.TRANSACTION_INDEX}
    return Segments(
        [
            Segment.open(fs, directory, base, opening.config, end)
            for base, end in zip(bases, ends, strict=True)
        ],
        aborting.intersection(bases),
    )


def _check_beginning(opening: LogOpening, first_base: int) -> None:
    start = opening.log_start_offset
    if first_base <= start or not opening.is_start_known:
        return
    path = paths.offset_file(opening.directory, first_base, paths.LOG)
    reason = f"the segments before it are missing: the log began at {start}"
    if not opening.is_loss_accepted:
        raise CorruptLogError(path, 0, reason)
    logger.warning("%s: going on without what is missing: %s", path, reason)


def _first_segment(opening: LogOpening) -> Segment:
    start = opening.log_start_offset
    if opening.recovery_point > start:
        raise CorruptLogError(
            opening.directory,
            0,
            f"no segment is left of the records below {opening.recovery_point}",
        )
    return Segment.create(opening.fs, opening.directory, start, opening.config, opening.now_ms)
