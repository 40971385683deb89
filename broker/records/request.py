"""A produce request as a whole: its partitions, its place in the order of the connection, its answer.

Every batch that can be is appended at once, and the answer waits only if the acknowledgement has to. A batch that is
`Unsettled`, and a request for many partitions, take longer: the connection's next produce requests wait until the
request has appended everything (lane `appends` of `broker/network/order.py`). A wait for an acknowledgement keeps
no one.

Functions return what a handler may (`Outcome` of `broker/network/request.py`), encoded by the port (`Encoding`).
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from functools import partial
from typing import Any

from echoless.broker.network.order import LanePlace
from echoless.broker.network.request import NO_RESPONSE, NeedsFrameUntil, NeedsNoFrame
from echoless.broker.network.turns import ROWS_PER_TURN, for_client, work_in_turns
from echoless.broker.records.acknowledgement import (
    AwaitedAcknowledgement,
    answer_nothing,
    is_unacknowledged,
)
from echoless.broker.records.append import StoredBatch, unless_deposed
from echoless.broker.records.in_flight import (
    ACKS_NONE,
    BatchesByTopic,
    InFlightProduce,
    TopicKey,
    Unsettled,
)
from echoless.broker.records.produce import is_transactional, produce_batch
from echoless.broker.records.refused_rows import (
    RefusedRows,
    refused_rows,
    refused_rows_by_steps,
    refused_transaction,
)
from echoless.protocol.produce import PartitionProduced, TopicProduced
from echoless.protocol.record_batch import Buffer

_RowOutcome = PartitionProduced | StoredBatch | Unsettled
_Rows = list[tuple[TopicKey, list[_RowOutcome]]]
"""The outcome for each partition, by topic."""
_Append = Callable[[], Coroutine[Any, Any, _Rows]]


def produce(flight: InFlightProduce, topics: BatchesByTopic, transactional_id: str | None) -> Any:
    """Answers a request for any number of partitions."""
    if transactional_id is not None:
        flight.transactional_id = transactional_id
    if len(topics) == 1 and (transactional_id is None or flight.parts.ask is not None):
        topic, partitions = topics[0]
        if len(partitions) == 1:
            index, records = partitions[0]
            return produce_one(flight, topic, index, records, transactional_id)
    if flight.request.peer.order.appends.places or _has_many_rows(topics):
        return _append_first(flight, partial(_append_all, flight, topics, transactional_id))
    refused = refused_rows(topics, transactional_id, are_served=flight.parts.ask is not None)
    rows = [(topic, _append_rows(flight, topic, rows, refused)) for topic, rows in topics]
    return _answer(flight, rows)


def produce_one(
    flight: InFlightProduce,
    topic: TopicKey,
    index: int,
    records: Buffer | None,
    transactional_id: str | None = None,
) -> Any:
    """Answers a request for one partition; with a transactional id only where transactions are served."""
    if flight.request.peer.order.appends.places:
        topics = [(topic, [(index, records)])]
        return _append_first(flight, partial(_append_all, flight, topics, transactional_id))
    if transactional_id is None and is_transactional(records):
        refused = refused_transaction(are_served=flight.parts.ask is not None)
        return _answer(flight, [(topic, [refused._replace(partition=index)])])
    one = produce_batch(flight, topic, index, records)
    if type(one) is StoredBatch and flight.acks and one.next_offset <= one.partition.high_watermark:
        return flight.encoding.one(flight.request.version, topic, one.produced)  # the usual case
    return _answer(flight, [(topic, [one])])


def produce_when_read(
    flight: InFlightProduce, read: Callable[[], Coroutine[Any, Any, BatchesByTopic]]
) -> NeedsFrameUntil:
    """Answers a request whose batches take long to read; `read` is called in its turn."""

    async def append() -> _Rows:
        return await _append_all(flight, await read(), None)

    return _append_first(flight, append)


def _has_many_rows(topics: Sequence[tuple[TopicKey, Sequence[object]]]) -> bool:
    """Whether the partitions, and topics without any, are too many for one turn of the event loop."""
    if len(topics) == 1:
        return len(topics[0][1]) > ROWS_PER_TURN
    return sum([len(rows) or 1 for _, rows in topics]) > ROWS_PER_TURN


# --- appending ---


def _append_rows(
    flight: InFlightProduce,
    topic: TopicKey,
    partitions: Sequence[tuple[int, Buffer | None]],
    refused: RefusedRows | None,
) -> list[_RowOutcome]:
    """Returns the outcome of each partition of a topic; a row that repeats a refused one has none."""
    if refused is None:
        return [produce_batch(flight, topic, index, records) for index, records in partitions]
    outcomes: list[_RowOutcome] = []
    for index, records in partitions:
        refusal = refused.take(topic, index)
        if refusal is None:
            outcomes.append(produce_batch(flight, topic, index, records))
        else:
            outcomes += refusal
    return outcomes


def _append_by_steps(
    flight: InFlightProduce, topics: BatchesByTopic, transactional_id: str | None, rows: _Rows
) -> Iterator[None]:
    """Adds the outcome of one partition per step to `rows`; a topic without partitions takes one too."""
    are_served = flight.parts.ask is not None
    refused = yield from refused_rows_by_steps(topics, transactional_id, are_served=are_served)
    for topic, partitions in topics:
        outcomes: list[_RowOutcome] = []
        rows.append((topic, outcomes))
        for one in partitions:
            outcomes += _append_rows(flight, topic, (one,), refused)
            yield
        if not partitions:
            yield


async def _append_all(
    flight: InFlightProduce, topics: BatchesByTopic, transactional_id: str | None
) -> _Rows:
    """Appends the batches of a request that has waited for its turn, or takes several turns of the event loop."""
    rows: _Rows = []
    flight.read_clock()
    await work_in_turns(_append_by_steps(flight, topics, transactional_id, rows))
    return await _append_pending(rows)


async def _append_pending(rows: _Rows) -> _Rows:
    """Puts the outcome of each batch that has to wait in its place."""
    for _, outcomes in rows:
        for place, one in enumerate(outcomes):
            outcome = one
            while isinstance(outcome, Unsettled):
                outcome = await outcome.append()
            outcomes[place] = outcome
    return rows


# --- answering ---


def _append_first(flight: InFlightProduce, append: _Append) -> NeedsFrameUntil:
    """Answers once `append` has stored every batch, after the earlier requests of the connection."""
    place = flight.request.peer.order.appends.enter()
    return NeedsFrameUntil(_answer_later(flight, append, place), place.left)


async def _answer_later(flight: InFlightProduce, append: _Append, place: LanePlace) -> Any:
    with place:
        await place.come()
        rows = await append()
    if _has_many_rows(rows):
        outcome = await _answer_in_turns(flight, rows)
    else:
        if flight.acks != ACKS_NONE:
            rows = _without_deposed(rows)
        outcome = _answer(flight, rows)
    del flight, append, rows  # and with them the records, while the acknowledgement waits
    return await outcome if isinstance(outcome, Awaitable) else outcome


async def _answer_in_turns(flight: InFlightProduce, rows: _Rows) -> Any:
    """Does what `_answer` does after a wait, for many rows, topic by topic."""
    topics: list[TopicProduced] = []
    waits: list[StoredBatch] = []
    acks = flight.acks

    def collect(topic: TopicKey, outcomes: list[_RowOutcome]) -> Iterator[None]:
        partitions: list[PartitionProduced] = []
        topics.append((topic, partitions))
        for outcome in outcomes:
            one = outcome
            if type(one) is StoredBatch and acks != ACKS_NONE:
                one = unless_deposed(one)
            if isinstance(one, StoredBatch):
                partitions.append(one.produced)
                if one.next_offset > one.partition.high_watermark and is_unacknowledged(acks, one):
                    waits.append(one)
            else:
                assert not isinstance(one, Unsettled), "a batch is unsettled after the append"
                partitions.append(one)
            yield

    await work_in_turns(itertools.chain.from_iterable(itertools.starmap(collect, rows)))
    await asyncio.sleep(0)
    if acks == ACKS_NONE:
        answer_nothing(topics)
        return NO_RESPONSE
    return _encoded(flight, topics, waits)


def _without_deposed(rows: _Rows) -> _Rows:
    """The outcomes after a wait, in which this broker may have lost the lead of some partitions."""
    return [
        (topic, [unless_deposed(one) if type(one) is StoredBatch else one for one in outcomes])
        for topic, outcomes in rows
    ]


def _answer(flight: InFlightProduce, rows: _Rows) -> Any:
    """The answer, or what it waits for."""
    acks = flight.acks
    topics: list[TopicProduced] = []
    waits: list[StoredBatch] = []
    for topic, outcomes in rows:
        partitions: list[PartitionProduced] = []
        topics.append((topic, partitions))
        for one in outcomes:
            if isinstance(one, StoredBatch):
                partitions.append(one.produced)
                # Below the high watermark it may be acknowledged whatever the acks are.
                if one.next_offset > one.partition.high_watermark and is_unacknowledged(acks, one):
                    waits.append(one)
            elif isinstance(one, Unsettled):
                return _append_first(flight, partial(_append_pending, rows))
            else:
                partitions.append(one)
    if acks == ACKS_NONE:
        answer_nothing(topics)
        return NO_RESPONSE
    return _encoded(flight, topics, waits)


def _encoded(flight: InFlightProduce, topics: list[TopicProduced], waits: list[StoredBatch]) -> Any:
    """The encoded rows, once the batches in `waits` are acknowledged; in a thread if there are many rows."""
    encode_all, version = flight.encoding.all, flight.request.version
    has_many_rows = _has_many_rows(topics)
    if not waits and not has_many_rows:
        return encode_all(version, topics)
    encode, host = partial(encode_all, version), flight.request.peer.host
    if not waits:
        return for_client(host, partial(encode, topics))
    timeout_s, deadlines = flight.timeout_ms / 1000, flight.parts.deadlines
    acknowledgement = AwaitedAcknowledgement(flight.acks, topics, waits, timeout_s, deadlines)
    if has_many_rows:
        return NeedsNoFrame(_encoded_in_thread(host, encode, acknowledgement))
    return acknowledgement.then(encode)


async def _encoded_in_thread(
    host: str,
    encode: Callable[[list[TopicProduced]], Any],
    acknowledgement: Awaitable[list[TopicProduced]],
) -> Any:
    topics = await acknowledgement
    return await for_client(host, partial(encode, topics))
