"""The rows that earlier attempts at a batch have stored: a later attempt continues after them.

The ledger has their sequence ranges, and the leaders say how many records of each are stored. If a leader has
forgotten the producer, the stored rows are counted in the log itself, and the rest has to continue under the
next epoch: not another id, because a new epoch also fences an attempt that is still alive somewhere, on each
partition from the first record under it. Rows that such an attempt stores between the count and that record are
stored twice; `partition_writer.py` looks for them before the end. Partitions without rows in the batch, which
may be forgotten at any time, do not lead to the next epoch.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

from echoless.client.sequencer import BAD_NEWS_MAX, Identity
from echoless.client.topic_partition import TopicPartition
from echoless.pipeline.exactly_once.entries import Begin, SequenceRange
from echoless.pipeline.exactly_once.errors import SinkError
from echoless.pipeline.exactly_once.leader_queries import LeaderQueries, LeaderState
from echoless.pipeline.exactly_once.ledger import TaskLocation
from echoless.pipeline.exactly_once.sequence_ranges import count_found, current_ranges

BAD_NEWS_PAUSE_S: Final = 0.5

CountStored = Callable[[SequenceRange, Identity, int], int]
"""Counts the records of a range in the log, below an offset."""


class Resumption(NamedTuple):
    """The state in which earlier attempts left a batch."""

    identity: Identity
    """The identity that the last of them sent under."""
    is_known: bool
    """Whether all leaders of partitions with rows know it; if not, the next epoch continues the batch."""
    rows: Mapping[TopicPartition, int]
    """Number of the batch's rows stored in each target."""
    leader_states: Mapping[TopicPartition, LeaderState]


def resume_batch(
    location: TaskLocation,
    begins: Sequence[Begin],
    leaders: LeaderQueries,
    count_stored: CountStored,
) -> Resumption:
    """Counts what is stored; asks several times if a leader has forgotten the producer. Raises `SinkError`."""
    identity = begins[-1].identity
    ranges = current_ranges(begins)
    for attempt in range(BAD_NEWS_MAX):
        if attempt:  # a leader that was just elected may not know the producer yet
            time.sleep(BAD_NEWS_PAUSE_S)
        leader_states = leaders.ask(ranges, identity.producer_id)
        _check_not_fenced(location, leader_states, identity)
        counts = {
            target: count_found(leader_states[target].found, identity, one)
            for target, one in ranges.items()
        }
        if None not in counts.values():
            break
    return _settle(ranges, identity, leader_states, counts, count_stored)


def _settle(
    ranges: Mapping[TopicPartition, SequenceRange],
    identity: Identity,
    leader_states: Mapping[TopicPartition, LeaderState],
    counts: Mapping[TopicPartition, int | None],
    count_stored: CountStored,
) -> Resumption:
    """Counts in the logs of leaders that have forgotten the producer."""
    rows = {}
    is_known = True
    for target, sequence_range in ranges.items():
        count = counts[target]
        if count is None:
            count = count_stored(sequence_range, identity, leader_states[target].log_end_offset)
            is_known &= not count and not sequence_range.sequence
        rows[target] = sequence_range.rows_before + count
    return Resumption(identity, is_known, rows, leader_states)


def _check_not_fenced(
    location: TaskLocation, leader_states: Mapping[TopicPartition, LeaderState], identity: Identity
) -> None:
    for target, leader_state in leader_states.items():
        found = leader_state.found
        if found is not None and found.producer_epoch > identity.producer_epoch:
            raise SinkError(
                f"{location}: {target} knows epoch {found.producer_epoch} of producer "
                f"{identity.producer_id}, the ledger {identity.producer_epoch}: another attempt "
                "has continued, or the ledger is an old copy"
            )
