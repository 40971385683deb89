"""Waits for acknowledgements end with the requests that began them."""

from __future__ import annotations

import asyncio
import gc
import weakref

import pytest

from echoless.broker.partitions.produce_rules import ProduceRules
from echoless.broker.partitions.waiters import Waiters
from echoless.broker.records.acknowledgement import AwaitedAcknowledgement
from echoless.broker.records.append import StoredBatch
from echoless.broker.records.deadlines import Deadlines
from echoless.broker.records.in_flight import ACKS_ALL
from echoless.protocol.batch_validation import ANY_TIMESTAMP
from echoless.protocol.errors import ErrorCode, KafkaError
from echoless.protocol.produce import PartitionProduced


class Waited:
    """A partition, as far as acknowledgements ask."""

    isr = (1,)
    rules = ProduceRules(bytes_max=1000, min_insync_replicas=1, timestamps=ANY_TIMESTAMP)

    def __init__(self) -> None:
        self.waiters = Waiters()


def waits(partition: Waited, timeout_s: float):
    produced = PartitionProduced(0, ErrorCode.NONE, 5)
    stored = StoredBatch(partition, produced, 6, 0)
    topics = [("t", [produced])]
    return AwaitedAcknowledgement(ACKS_ALL, topics, [stored], timeout_s, Deadlines())


async def test_a_client_that_disconnects_leaves_nothing(caplog: pytest.LogCaptureFixture):
    """A thousand waits that are cancelled: no entry, and no traceback at the next fail-over."""
    partition = Waited()
    tasks = [asyncio.ensure_future(waits(partition, 60)) for _ in range(1000)]
    await asyncio.sleep(0)
    assert len(partition.waiters.commit) == 1000
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert len(partition.waiters.commit) == 0
    partition.waiters.fail(KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER))
    del tasks, task
    gc.collect()
    assert not caplog.records


async def test_a_timeout_leaves_nothing():
    """The client gets 7, and no waiter is left."""
    partition = Waited()
    ((_, (produced,)),) = await waits(partition, 0)
    assert produced.error_code is ErrorCode.REQUEST_TIMED_OUT
    assert len(partition.waiters.commit) == 0


class Referred(AwaitedAcknowledgement):
    """An acknowledgement that a test can see being freed."""

    __slots__ = ("__weakref__",)


async def test_an_acknowledgement_is_freed_with_its_answer():
    """One for every request: the garbage collector would have to look for them."""
    partition, produced = Waited(), PartitionProduced(0, ErrorCode.NONE, 5)
    topics, stored = [("t", [produced])], StoredBatch(partition, produced, 6, 0)
    gc.disable()
    try:
        waiting = Referred(ACKS_ALL, topics, [stored], 60, Deadlines())
        freed = weakref.ref(waiting)
        partition.waiters.commit.reached(6)
        assert waiting.answer() == topics
        del waiting
        assert freed() is None
    finally:
        gc.enable()
