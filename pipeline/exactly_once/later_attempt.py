"""How far the earlier attempts at a batch came: a later one continues from there.

The ledger has their numbers, and the leaders say how many rows are stored under them. If a leader has
forgotten the producer, the stored rows are counted in the log itself, and the rest has to continue under
the next epoch. An epoch, and not another id, because it also fences an attempt that is still alive
somewhere: on each partition from the first record under the new epoch on. Rows that such an attempt stores
between the count and that record are stored twice; `partition_writer.py` looks for them before the end. So
partitions without rows in the batch, which may be forgotten at any time, do not lead to the next epoch.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

from echoless.client.sequencer import BAD_NEWS_MAX, Identity
from echoless.client.topic_partition import TopicPartition
from echoless.pipeline.exactly_once.entries import Begin, Stretch
from echoless.pipeline.exactly_once.errors import SinkError
from echoless.pipeline.exactly_once.leaders import Leaders, Standing
from echoless.pipeline.exactly_once.ledger import Place
from echoless.pipeline.exactly_once.stretches import count_found, current_stretches

BAD_NEWS_PAUSE_S: Final = 0.5

CountStored = Callable[[Stretch, Identity, int], int]
"""Counts in the log how many records of a stretch there are before an offset."""


class Resumption(NamedTuple):
    """The outcome of the earlier attempts."""

    identity: Identity
    """The one they sent under."""
    is_known: bool
    """Whether every partition with rows knows it; if not, the batch continues under the next one."""
    rows: Mapping[TopicPartition, int]
    """The rows stored in each target."""
    standings: Mapping[TopicPartition, Standing]


def resume_batch(
    place: Place, begins: Sequence[Begin], leaders: Leaders, count_stored: CountStored
) -> Resumption:
    """Asks the leaders, several times if one has forgotten the producer. Raises `SinkError`."""
    identity = begins[-1].identity
    stretches = current_stretches(begins)
    for attempt in range(BAD_NEWS_MAX):
        if attempt:  # a leader that has just become one may not know better
            time.sleep(BAD_NEWS_PAUSE_S)
        standings = leaders.ask(stretches, identity.producer_id)
        _check_not_fenced(place, standings, identity)
        counts = {t: count_found(standings[t].found, identity, s) for t, s in stretches.items()}
        if None not in counts.values():
            break
    return _settle(stretches, identity, standings, counts, count_stored)


def _settle(
    stretches: Mapping[TopicPartition, Stretch],
    identity: Identity,
    standings: Mapping[TopicPartition, Standing],
    counts: Mapping[TopicPartition, int | None],
    count_stored: CountStored,
) -> Resumption:
    """Completes the counts of leaders that have forgotten the producer from their logs."""
    rows = {}
    is_known = True
    for target, stretch in stretches.items():
        count = counts[target]
        if count is None:
            count = count_stored(stretch, identity, standings[target].log_end_offset)
            is_known &= not count and not stretch.sequence
        rows[target] = stretch.rows_before + count
    return Resumption(identity, is_known, rows, standings)


def _check_not_fenced(
    place: Place, standings: Mapping[TopicPartition, Standing], identity: Identity
) -> None:
    for target, standing in standings.items():
        found = standing.found
        if found is not None and found.producer_epoch > identity.producer_epoch:
            raise SinkError(
                f"{place}: {target} knows epoch {found.producer_epoch} of producer "
                f"{identity.producer_id}, the ledger {identity.producer_epoch}: another attempt "
                "has continued, or the ledger is an old copy"
            )
