"""A log's parts before anything is read from its segments, and the log of a directory that was just made.

Called by `Log.open` and `recovery.py`.
"""

from __future__ import annotations

import logging

from echoless.storage import paths
from echoless.storage.checkpoints import CheckpointError, NewerCheckpointError
from echoless.storage.file_system import CorruptLogError
from echoless.storage.leader_epochs import LeaderEpochs
from echoless.storage.opening import LogOpening, Recovered
from echoless.storage.producers.state import ProducerStates
from echoless.storage.segment import Segment
from echoless.storage.segments import Segments

logger = logging.getLogger(__name__)


def begin(opening: LogOpening) -> Recovered:
    """Begins a log in a directory that was just made: there is nothing to look for. Raises `StorageError`."""
    segment = Segment.create(
        opening.fs, opening.directory, 0, opening.config, opening.now_ms, has_leftovers=False
    )
    return with_segments(opening, Segments([segment]))


def with_segments(opening: LogOpening, segments: Segments) -> Recovered:
    """The parts of the log before anything is read from its segments."""
    config = opening.config
    return Recovered(
        segments=segments,
        producers=ProducerStates(
            config.window,
            config.producer_id_expiration_ms,
            config.producers_max,
            config.leased_producer_expiration_ms,
            is_fair=config.producers_fair,
            forgotten_max=config.forgotten_max,
        ),
        leader_epochs=_open_leader_epochs(opening),
        log_start_offset=opening.log_start_offset,
        recovery_point=opening.recovery_point,
    )


def _open_leader_epochs(opening: LogOpening) -> LeaderEpochs:
    """Reads the file. A damaged one is removed if its loss is accepted: all batches are scanned then."""
    path = paths.join(opening.directory, paths.LEADER_EPOCH_CHECKPOINT)
    try:
        return LeaderEpochs(opening.fs, path)
    except NewerCheckpointError:
        raise
    except CheckpointError as error:
        if not opening.is_loss_accepted:
            raise CorruptLogError(path, 0, str(error).removeprefix(f"{path}: ")) from error
        logger.warning("dropping %s, to be made again from the batches: %s", path, error)
        opening.fs.remove(path)
    return LeaderEpochs(opening.fs, path)
