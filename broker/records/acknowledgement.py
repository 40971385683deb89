"""When a produced batch may be acknowledged, and what its client is told if it cannot be.

acks=0 answers nothing and closes the connection on an error; acks=1 waits until the batch is as
durable on the leader as `log_flush` requires; acks=-1 until the high watermark has passed it. A
duplicate waits for its original exactly as the first copy did.

Called by the Produce handlers of both ports.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping

from broker.network.request import CloseConnectionError
from broker.partitions.partition import Partition
from broker.records.produce import ACKS_ALL, Stored
from protocol.errors import ErrorCode, KafkaError
from protocol.produce import TopicProduced


def unacknowledged(acks: int, stored: list[Stored]) -> list[Stored]:
    """The batches that the broker may not acknowledge yet under `acks`."""
    if acks == ACKS_ALL:
        return [one for one in stored if one.next_offset > one.partition.high_watermark]
    return [one for one in stored if one.next_offset > one.partition.durable_offset]


def acknowledged(
    acks: int, topics: list[TopicProduced], waits: list[Stored], timeout_s: float
) -> Awaitable[list[TopicProduced]]:
    """Waits for all partitions together, at most for the timeout; returns the topics with the result.

    The wait begins with the call, not with the first `await`: nothing is missed in between.
    """
    by_all = acks == ACKS_ALL
    futures = {
        one.partition.waiters.acknowledgement(one.next_offset, by_all=by_all): one for one in waits
    }
    return _when_done(futures, topics, timeout_s, by_all=by_all)


async def _when_done(
    futures: Mapping[asyncio.Future[None], Stored],
    topics: list[TopicProduced],
    timeout_s: float,
    *,
    by_all: bool,
) -> list[TopicProduced]:
    try:
        done, late = await asyncio.wait(futures, timeout=max(timeout_s, 0))
    finally:
        # Also if the client is gone and this task is cancelled.
        for future, one in futures.items():
            if not future.done():
                one.partition.waiters.abandon(future, by_all=by_all)
    failed = {futures[future].partition: ErrorCode.REQUEST_TIMED_OUT for future in late}
    for future in done:
        partition = futures[future].partition
        error = future.exception()
        if isinstance(error, KafkaError):
            failed[partition] = error.code
        elif by_all and len(partition.isr) < partition.rules.min_insync_replicas:
            failed[partition] = ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
    waits = list(futures.values())
    return [_with_failures(topic, failed, waits) for topic in topics] if failed else topics


def _with_failures(
    topic: TopicProduced, failed: dict[Partition, ErrorCode], waits: list[Stored]
) -> TopicProduced:
    """The topic with error codes for batches that were appended but cannot be acknowledged."""
    codes = {id(one.produced): failed[one.partition] for one in waits if one.partition in failed}
    partitions = [
        produced._replace(error_code=codes.get(id(produced), produced.error_code))
        for produced in topic.partitions
    ]
    return topic._replace(partitions=partitions)


def answer_nothing(topics: list[TopicProduced]) -> None:
    """For acks=0: raises `CloseConnectionError` if anything failed, as no error can be returned."""
    for topic in topics:
        for produced in topic.partitions:
            if produced.error_code:
                raise CloseConnectionError(
                    f"acks=0 produce to {topic.topic}-{produced.partition} failed: "
                    f"{produced.error_code.name}, and the client expects no answer"
                )
