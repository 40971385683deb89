"""Refuses a ledger that is an old copy, before a lane that it does not know gets a producer.

A lane that the ledger knows is compared with its leaders whenever a batch begins (`first_attempt.py`). One that it does
not know has nothing to compare, and may be a lane that the copy is too old for, whose rows are stored. So before a lane gets its first
producer, those that the ledger knows are compared: where leaders have more records of one of them than the ledger, this task
stores nothing.

The others may be at work in this batch. They record a `begin` before they send, so one that is ahead is looked at again: an entry
that was added since accounts for its records.

Invariant: a lane gets its first producer only while the lanes of the last batches have no more records than the ledger accounts for.

The tasks of a run that one process runs compare once. The lanes are as many as the most Spark partitions of the batches whose records
are kept (ten), so lanes that have been idle for longer cost nothing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final, NamedTuple

from echoless.client.topic_partition import TopicPartition
from echoless.pipeline.exactly_once.batch_record import BatchRecord
from echoless.pipeline.exactly_once.entries import End
from echoless.pipeline.exactly_once.first_attempt import leader_ahead
from echoless.pipeline.exactly_once.leader_queries import LeaderQueries, LeaderState
from echoless.pipeline.exactly_once.ledger import TaskLocation, has_begun, last_end
from echoless.pipeline.exactly_once.ledger_files import LedgerFiles
from echoless.pipeline.exactly_once.previous_batch import previous_batch
from echoless.pipeline.exactly_once.shared_answers import LeaderAnswer

_PARALLEL_READS: Final = 32
"""Files read at once: remote file systems are slow."""


class KnownLane(NamedTuple):
    """A lane that the ledger knows, and the end of its last batch."""

    location: TaskLocation
    end: End


def check_age(files: LedgerFiles, location: TaskLocation, leaders: LeaderQueries) -> None:
    """Compares the lanes of the last batches with leaders, once for each run. Raises `SinkError` if one is ahead."""
    if leaders.has_compared:
        return
    cluster_id = leaders.cluster_id()
    lanes = [one for one in _known_lanes(files, location) if one.end.cluster_id == cluster_id]
    topics = {one.topic for lane in lanes for one in lane.end.state.partitions}
    found = _by_producer(leaders.ask_about_topics(sorted(topics)))
    for lane in lanes:
        previous = previous_batch(lane.end)
        assert previous.identity is not None
        states = found.get(previous.identity.producer_id, {})
        ahead = leader_ahead(states, previous.identity, previous.sequences)
        if ahead is not None and not _has_continued(files, lane):
            raise ahead.error(location)
    leaders.note_compared()


def _known_lanes(files: LedgerFiles, location: TaskLocation) -> list[KnownLane]:
    """Reads the lanes whose last batch has ended. Raises `LedgerError`."""
    record = BatchRecord(files, location.sink, location.query_id, location.batch_id)
    own = location.lane_number
    lanes = [location._replace(lane=n) for n in range(record.most_tasks_before()) if n != own]
    if not lanes:
        return []
    with ThreadPoolExecutor(min(len(lanes), _PARALLEL_READS)) as threads:
        ends = list(threads.map(partial(last_end, files), lanes))
    return [KnownLane(lane, end) for lane, end in zip(lanes, ends, strict=True) if end is not None]


def _by_producer(
    answers: Mapping[TopicPartition, LeaderAnswer],
) -> dict[int, dict[TopicPartition, LeaderState]]:
    found: dict[int, dict[TopicPartition, LeaderState]] = defaultdict(dict)
    for target, answer in answers.items():
        for producer_id, entry in answer.producers.items():
            found[producer_id][target] = LeaderState(answer.log_end_offset, entry)
    return found


def _has_continued(files: LedgerFiles, lane: KnownLane) -> bool:
    """Whether an entry was added since. It is also looked for by its name: a listing may be stale."""
    return last_end(files, lane.location) != lane.end or has_begun(files, lane.location)
