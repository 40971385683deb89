"""Which batches share a Produce request."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from echoless.client.async_producer import AsyncProducer
from echoless.client.produce_queue import ProduceGroup, ProduceQueue
from echoless.client.produce_request import PartitionBatch
from echoless.client.settings import Settings
from echoless.protocol.errors import DecodeError
from echoless.protocol.produce_response import ProducedRow
from echoless.protocol.records import Record
from tests.support.in_process import in_process

RECORD = Record(-1, 1_795_000_000_000, None, b"v")
BATCHES = st.lists(
    st.tuples(
        st.sampled_from("ab"), st.integers(0, 3), st.integers(1, 60), st.sampled_from([0, 100])
    ),
    max_size=30,
)
"""Topic, partition, size, and the bytes of the request that it may share."""


@given(BATCHES)
def test_requests_keep_the_order_of_each_partition(batches):
    """No request has two batches of a partition, or too much in all, and nothing is lost."""
    queue = ProduceQueue()
    for topic, partition, size, bytes_max in batches:
        batch = PartitionBatch(topic, partition, b"x" * size)
        queue.add(batch, Kept(), timeout_ms=1, bytes_max=bytes_max)
    groups = []
    while (group := queue.pop(may_wait=False, waiting_bytes_max=0)) is not None:
        groups.append(group.batches)
        assert len({one[:2] for one in group.batches}) == len(group.batches)
        assert group.size <= 100
        assert not group.is_alone or len(group.batches) == 1
    for key in {batch[:2] for batch in batches}:
        given_sizes = [size for *place, size, _ in batches if tuple(place) == key]
        sent_sizes = [len(one.data) for group in groups for one in group if one[:2] == key]
        assert sent_sizes == given_sizes


@pytest.mark.parametrize(
    ("size", "bytes_max", "leaves"), [(99, 1000, False), (100, 1000, True), (1, 0, True)]
)
def test_small_batches_wait_while_many_requests_are_pending(size, bytes_max, leaves):
    """They wait until there is enough for a request; a batch that goes alone sends all before it."""
    queue = ProduceQueue()
    batch = PartitionBatch("t", 0, b"x" * size)
    queue.add(batch, Kept(), timeout_ms=1, bytes_max=bytes_max)
    found = queue.pop(may_wait=True, waiting_bytes_max=100)
    assert (found is not None) == leaves
    assert (queue.pop(may_wait=False, waiting_bytes_max=100) is not None) != leaves


class Kept:
    """A receiver that keeps what it takes."""

    def __init__(self):
        self.rows, self.errors = [], []
        self.take, self.fail = self.rows.append, self.errors.append


def answer(*partitions):
    return [ProducedRow("t", partition, 0, 17, -1) for partition in partitions]


def test_each_partition_gets_its_row():
    """The order of the broker's answer does not matter."""
    group = ProduceGroup(timeout_ms=1, bytes_max=100)
    receivers = [Kept(), Kept()]
    for partition, receiver in enumerate(receivers):
        group.add(PartitionBatch("t", partition, b"x"), receiver)
    group.take(answer(1, 0))
    assert [[row.partition for row in one.rows] for one in receivers] == [[0], [1]]


@pytest.mark.parametrize("partitions", [(), (1,), (0, 1)])
def test_answer_about_other_partitions_is_none(partitions):
    """The outcome of the batch would be unknown."""
    group = ProduceGroup(timeout_ms=1, bytes_max=100)
    group.add(PartitionBatch("t", 0, b"x"), Kept())
    with pytest.raises(DecodeError):
        group.take(answer(*partitions))


@pytest.mark.parametrize(("bytes_max", "requests"), [(64 * 1024, 1), (0, 8)])
async def test_batches_of_all_partitions_leave_together(
    tmp_path: Path, bytes_max, requests
) -> None:
    """Unless that is switched off."""
    async with (
        in_process(tmp_path, num_partitions=8) as running,
        AsyncProducer(running.kafka_address, Settings(request_bytes_max=bytes_max)) as producer,
    ):
        await producer.send_batch("t", 0, [RECORD])  # connects
        connection = producer._around.cluster.known_leader("t", 0)
        before = connection._correlation_id
        sent = [await producer.send("t", b"v", partition=partition) for partition in range(8)]
        await producer.flush()
        assert [(await one).offset for one in sent] == [1, *[0] * 7]
        assert connection._correlation_id - before == requests
