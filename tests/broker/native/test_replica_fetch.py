"""The long poll of followers: what is answered at once, what waits, and whose turn it is."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from echoless.broker.native.replica_fetch import ReplicaFetches
from echoless.broker.network.promise import Promise
from echoless.broker.network.request import Peer
from echoless.broker.network.turns import ROWS_PER_TURN
from echoless.broker.partitions.waiters import Waiters
from echoless.protocol.errors import ErrorCode, KafkaError
from echoless.protocol.native.codec import decode_message
from echoless.protocol.native.replica_fetch_answer import ReplicaFetchAnswer
from echoless.protocol.native.replication import (
    ReplicaFetch,
    ReplicaFetched,
    ReplicaWanted,
    read_replica_fetch_answer,
)
from echoless.storage.file_system import StorageError

TOPIC_ID = uuid.UUID(int=9)
LONG_MS = 30_000
PEER = Peer(1, "127.0.0.1:1")


@pytest.fixture(scope="module", autouse=True)
def _partitions_that_answer() -> Iterator[None]:
    """Has the partitions of these tests answer for themselves."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            "echoless.broker.native.replica_pass.fetch_as_replica",
            lambda partition, *asked: partition.fetch_as_replica(*asked),
        )
        patch.setattr(
            "echoless.broker.native.replica_pass.read_further",
            lambda partition, _, offset, bytes_max: partition.read(offset, bytes_max),
        )
        yield


@dataclass(slots=True)
class FakeLog:
    log_end_offset: int = 0


@dataclass(slots=True)
class FakePartition:
    """A leader of batches that are one offset and any bytes each."""

    batches: list[bytes] = field(default_factory=list)
    log: FakeLog = field(default_factory=FakeLog)
    diverging: tuple[int, int] | None = None
    error: Exception | None = None
    fetches: list[tuple[int, ...]] = field(default_factory=list)
    waiters: Waiters = field(default_factory=Waiters)

    def append(self, batch: bytes) -> None:
        self.batches.append(batch)
        self.log.log_end_offset += 1
        self.waiters.append.wake()

    def fetch_as_replica(self, *asked: int) -> ReplicaFetched:
        *_, offset, _, bytes_max = asked
        self.fetches.append(asked)
        return self.read(offset, bytes_max)

    def read(self, offset: int, bytes_max: int) -> ReplicaFetched:
        if self.error is not None:
            raise self.error
        data = b""
        for batch in self.batches[offset:] if bytes_max and self.diverging is None else ():
            if data and len(data) + len(batch) > bytes_max:
                break
            data += batch
        return ReplicaFetched(ErrorCode.NONE, 5, 0, self.diverging, data)


@dataclass(slots=True)
class FakePartitions:
    """The partitions of one topic."""

    held: list[FakePartition]

    def find(self, topic_id: uuid.UUID, index: int) -> FakePartition:
        if topic_id != TOPIC_ID:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
        return self.held[index]


@dataclass(slots=True)
class FakeServices:
    """The parts that the handler asks."""

    partitions: FakePartitions
    stopping: asyncio.Event = field(default_factory=asyncio.Event)
    failures: list[Exception] = field(default_factory=list)

    def fail_storage(self, error: StorageError) -> None:
        self.failures.append(error)


class Leader:
    """A broker with some partitions, and the fetches of one follower."""

    def __init__(self, count: int = 2) -> None:
        self.partitions = [FakePartition() for _ in range(count)]
        self.services = FakeServices(FakePartitions(self.partitions))
        self.fetches = ReplicaFetches()

    def fetch(
        self,
        offsets: Sequence[int] = (0, 0),
        *,
        order: Sequence[int] | None = None,
        **changes: Any,
    ) -> list[ReplicaFetched] | Awaitable[list[ReplicaFetched]]:
        """The answer, or an awaitable of it. `order`: the order of the partitions in the message."""
        message = self.message(offsets, order=order, **changes)
        outcome = self.handle(message)
        if isinstance(outcome, ReplicaFetchAnswer):
            return _read(outcome, message.partitions)
        return _read_later(outcome, message.partitions)

    def message(
        self,
        offsets: Sequence[int] = (0, 0),
        *,
        order: Sequence[int] | None = None,
        **changes: Any,
    ) -> ReplicaFetch:
        order = range(len(offsets)) if order is None else order
        wanted = [ReplicaWanted("t", TOPIC_ID, index, 4, offsets[index], 3) for index in order]
        fields = {"max_wait_ms": 0, "min_bytes": 1, "bytes_max": 1000, **changes}
        return ReplicaFetch(broker_id=2, broker_epoch=7, partitions=wanted, **fields)

    def handle(self, message: ReplicaFetch) -> ReplicaFetchAnswer | Awaitable[ReplicaFetchAnswer]:
        """The outcome as the handler returns it."""
        return self.fetches.handle(message, PEER, self.services)  # type: ignore[arg-type]

    @property
    def waiting(self) -> list[int]:
        return [len(partition.waiters.append) for partition in self.partitions]


def _read(answer: ReplicaFetchAnswer, wanted: Sequence[ReplicaWanted]) -> list[ReplicaFetched]:
    return read_replica_fetch_answer(decode_message(b"".join(answer.packed(1))), wanted)


async def _read_later(
    answer: Awaitable[ReplicaFetchAnswer], wanted: Sequence[ReplicaWanted]
) -> list[ReplicaFetched]:
    return _read(await answer, wanted)


def batches(fetched: Any) -> list[bytes]:
    """The batches of an answer that was there at once."""
    assert isinstance(fetched, list), "the answer was to be there at once"
    return [one.batches for one in fetched]


async def waits(fetch: Any) -> asyncio.Task[list[ReplicaFetched]]:
    """The task of a fetch that is waiting for appends by now."""
    assert not isinstance(fetch, list), "the answer was to come later"
    task = asyncio.ensure_future(fetch)
    await asyncio.sleep(0)
    assert not task.done()
    return task


def test_what_is_there_is_answered_at_once() -> None:
    """Batches of all partitions, with high watermark and log start, in the message's order."""
    leader = Leader()
    leader.partitions[1].append(b"one")
    fetched = leader.fetch(max_wait_ms=LONG_MS)
    assert batches(fetched) == [b"", b"one"]
    assert fetched[1][:4] == (ErrorCode.NONE, 5, 0, None)  # type: ignore[index]


def test_a_partition_is_asked_with_what_the_follower_says() -> None:
    """Broker, its epoch, leader epoch, offset and last epoch reach the partition as they are."""
    leader = Leader()
    leader.fetch([11, 12])
    assert leader.partitions[1].fetches == [(2, 7, 4, 12, 3, 1000)]


@pytest.mark.parametrize(
    "error",
    [
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.OFFSET_OUT_OF_RANGE,
    ],
)
def test_an_error_is_answered_at_once_and_alone(error: ErrorCode) -> None:
    """It concerns one partition; the others are answered as usual, in the same message."""
    leader = Leader()
    leader.partitions[0].error = KafkaError(error)
    leader.partitions[1].append(b"one")
    fetched = leader.fetch(max_wait_ms=LONG_MS, min_bytes=1000)
    assert batches(fetched) == [b"", b"one"]
    assert fetched[0] == ReplicaFetched(error)  # type: ignore[index]


def test_a_divergence_is_answered_at_once() -> None:
    """The follower has to cut before anything else makes sense."""
    leader = Leader()
    leader.partitions[0].diverging = (2, 8)
    fetched = leader.fetch(max_wait_ms=LONG_MS, min_bytes=1000)
    assert isinstance(fetched, list)
    assert fetched[0].diverging == (2, 8)


def test_a_broken_disk_takes_the_directory_offline() -> None:
    """The follower gets the error, and the broker is notified."""
    leader = Leader()
    error = StorageError("/data", "broken")
    leader.partitions[0].error = error
    fetched = leader.fetch(max_wait_ms=LONG_MS)
    assert fetched[0] == ReplicaFetched(ErrorCode.KAFKA_STORAGE_ERROR)  # type: ignore[index]
    assert leader.services.failures == [error]


async def test_the_answer_holds_all_that_was_appended_in_the_step_that_ended_the_wait() -> None:
    """It is read when it is taken, at the end of that step: five requests of one read are one answer."""
    leader = Leader()
    waiting = leader.handle(leader.message(max_wait_ms=LONG_MS))
    assert isinstance(waiting, Promise)
    assert waiting.waits_for_others
    for index, batch in ((0, b"one"), (1, b"two"), (0, b"three")):
        leader.partitions[index].append(batch)
    assert waiting.is_ready
    assert leader.waiting == [0, 0]
    assert [one.batches for one in waiting.answer().fetched] == [b"onethree", b"two"]


async def test_an_append_ends_the_wait() -> None:
    """An append to any of the partitions does; no waiter is left over."""
    leader = Leader()
    waiting = await waits(leader.fetch(max_wait_ms=LONG_MS))
    assert leader.waiting == [1, 1]
    leader.partitions[1].append(b"one")
    assert batches(await waiting) == [b"", b"one"]
    assert leader.waiting == [0, 0]


async def test_the_wait_goes_on_until_there_is_enough() -> None:
    """`min_bytes` counts over all partitions; the answer holds them all."""
    leader = Leader()
    waiting = await waits(leader.fetch(max_wait_ms=LONG_MS, min_bytes=8))
    for index, batch in ((0, b"one"), (1, b"two")):
        leader.partitions[index].append(batch)
        await asyncio.sleep(0)
    assert not waiting.done()
    leader.partitions[0].append(b"three")
    assert batches(await waiting) == [b"onethree", b"two"]


async def test_a_change_of_role_ends_the_wait() -> None:
    """A fetcher waiting at a former leader is answered, and can go to the next one."""
    leader = Leader()
    waiting = await waits(leader.fetch(max_wait_ms=LONG_MS))
    leader.partitions[0].error = KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    leader.partitions[0].waiters.append.wake()
    assert (await waiting)[0].error is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert leader.waiting == [0, 0]


async def test_the_wait_ends_with_its_time() -> None:
    """Without news the answer is empty, but has the high watermark."""
    leader = Leader()
    fetched = await leader.fetch(max_wait_ms=1)  # type: ignore[misc]
    assert [one[:2] for one in fetched] == [(ErrorCode.NONE, 5)] * 2
    assert leader.waiting == [0, 0]


async def test_an_append_before_the_wait_begins_is_not_missed() -> None:
    """The task of the answer starts later than the look that found nothing."""
    leader = Leader()
    fetch = leader.fetch(max_wait_ms=LONG_MS)
    leader.partitions[0].append(b"one")
    assert batches(await fetch) == [b"one", b""]  # type: ignore[misc]


async def test_a_follower_that_has_gone_leaves_nobody_waiting() -> None:
    """Its connection cancels the answer; and of two fetches, on two connections, each its own."""
    leader = Leader()
    first = await waits(leader.fetch(max_wait_ms=LONG_MS))
    second = await waits(leader.fetch(max_wait_ms=LONG_MS))
    first.cancel()
    await asyncio.wait((first,))
    assert leader.waiting == [1, 1]
    leader.partitions[0].append(b"one")
    assert batches(await second) == [b"one", b""]
    assert leader.waiting == [0, 0]


async def test_a_stopping_broker_lets_nobody_wait() -> None:
    """Neither a new fetch nor one that is woken."""
    leader = Leader()
    waiting = await waits(leader.fetch(max_wait_ms=LONG_MS))
    leader.services.stopping.set()
    assert batches(leader.fetch(max_wait_ms=LONG_MS)) == [b"", b""]
    leader.partitions[0].waiters.append.wake()
    assert batches(await waiting) == [b"", b""]


def test_nothing_but_errors_is_not_waited_for() -> None:
    """Without a partition there is no append that could end the wait."""
    leader = Leader(0)
    assert batches(leader.fetch([], max_wait_ms=LONG_MS)) == []


def test_the_first_batch_comes_whole_even_if_it_is_too_large() -> None:
    """Otherwise it would never come; the bounds hold for all that follows it."""
    leader = Leader()
    for partition in leader.partitions:
        partition.append(b"b" * 50)
    assert batches(leader.fetch(bytes_max=10)) == [b"b" * 50, b""]


def test_every_partition_hears_of_the_follower_though_no_bytes_are_left() -> None:
    """Its progress counts whether or not there is room to send it more."""
    leader = Leader(3)
    leader.partitions[0].append(b"b" * 50)
    leader.fetch([0, 0, 0], bytes_max=50)
    assert [len(one.fetches) for one in leader.partitions] == [1, 1, 1]
    assert leader.partitions[2].fetches[0][-1] == 0


@given(
    st.lists(st.integers(1, 200), min_size=1, max_size=6),
    st.integers(1, 300),
    st.booleans(),
    st.data(),
)
def test_no_partition_starves(
    sizes: list[int], bytes_max: int, is_shuffled: bool, data: st.DataObject
) -> None:
    """After as many fetches as there are partitions, each that has batches was sent some."""
    count = len(sizes)
    leader = Leader(count)
    for partition, size in zip(leader.partitions, sizes, strict=True):
        for _ in range(1000):
            partition.append(b"b" * size)
    offsets = [0] * count
    order: Sequence[int] = range(count)
    if is_shuffled:
        order = data.draw(st.permutations(range(count)))
    for _ in range(count):
        fetched = leader.fetch(offsets, order=order, bytes_max=bytes_max)
        sent = batches(fetched)
        assert sum(map(len, sent)) <= max(bytes_max, *map(len, sent))
        for index, one in zip(order, sent, strict=True):
            offsets[index] += len(one) // sizes[index]
    assert all(offsets)


def test_turns_survive_a_change_of_partitions() -> None:
    """The partition whose turn it is may have left, and the order of the others may differ."""
    leader = Leader(3)
    for partition in leader.partitions:
        partition.append(b"b" * 50)
    assert batches(leader.fetch([0, 0, 0], bytes_max=50)) == [b"b" * 50, b"", b""]
    assert batches(leader.fetch([0, 0, 0], order=[2, 0], bytes_max=50)) == [b"b" * 50, b""]
    assert batches(leader.fetch([0, 0, 0], order=[2, 1, 0], bytes_max=50)) == [b"", b"", b"b" * 50]


MANY = 3 * ROWS_PER_TURN
"""Partitions of a follower that are not read in one turn of the loop."""


async def test_thousands_of_partitions_are_read_in_turns() -> None:
    """Others are served in between, and the answer is the same."""
    leader = Leader(MANY)
    for partition in leader.partitions:
        partition.append(b"a")
    turns = 0

    async def count_turns() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    counting = asyncio.create_task(count_turns())
    fetch = leader.fetch([0] * MANY, bytes_max=2)
    assert not isinstance(fetch, list)
    fetched = await fetch
    counting.cancel()
    assert [one.batches for one in fetched] == [b"a"] * 2 + [b""] * (MANY - 2)
    assert turns >= MANY // ROWS_PER_TURN
    following = leader.fetch([1, 1, *[0] * (MANY - 2)], bytes_max=1)
    assert not isinstance(following, list)
    assert [one.batches for one in await following][:4] == [b"", b"", b"a", b""]


@pytest.mark.parametrize("asked", range(0, 2 * MANY + 1, ROWS_PER_TURN // 2))
async def test_no_append_between_two_turns_is_missed(asked: int) -> None:
    """It may come to a partition that was read in this pass already, at any moment of both passes."""
    leader = Leader(MANY)
    fetch = leader.fetch([0] * MANY, max_wait_ms=LONG_MS)
    assert not isinstance(fetch, list)
    task = asyncio.ensure_future(fetch)
    while sum(len(one.fetches) for one in leader.partitions) < asked:  # noqa: ASYNC110 - no event
        await asyncio.sleep(0)
    leader.partitions[0].append(b"a")
    async with asyncio.timeout(LONG_MS / 3000):
        assert (await task)[0].batches == b"a"
    assert set(leader.waiting) == {0}
