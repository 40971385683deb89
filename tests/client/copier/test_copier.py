"""A copier in a process with its broker: what it commits, when it refuses to go on, how it replaces its producer ids."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from echoless.client.async_producer import AsyncProducer
from echoless.client.cluster import Cluster, parse_addresses
from echoless.client.coordinator import Coordinator
from echoless.client.copier.copier import Copier, CopierFigures
from echoless.client.copier.position import Position, PositionError
from echoless.client.copier.positions import CommittedPosition, Positions
from echoless.client.copier.records import InputRecord, OutputRecord, to_same_partition
from echoless.client.copier.settings import CopierSettings
from echoless.client.errors import DeliveryError, ProducerError
from echoless.client.groups.errors import GroupError
from echoless.client.groups.member import Generation, GroupMember
from echoless.client.lease_keeper import elapsed_s
from tests.support.in_process import Running, in_process
from tests.support.stored_values import stored_values

pytestmark = pytest.mark.slow

HOUR_S = 3600
GROUP = "copiers"
SETTINGS = CopierSettings(
    group=GROUP,
    topics=("in",),
    commit_interval_s=0.02,
    session_timeout_s=0.6,
    topics_interval_s=0.1,
)
COPY = to_same_partition(topic="out")


class Clock:
    """The real time, moved forward by the test."""

    def __init__(self) -> None:
        self.ahead_s = 0.0

    def ms(self) -> int:
        return round((1.8e9 + self.ahead_s) * 1000)

    def s(self) -> float:
        return elapsed_s() + self.ahead_s


@contextlib.asynccontextmanager
async def broker(tmp_path, **settings: Any) -> AsyncIterator[Running]:
    """A broker that keeps the records of 1970 that the tests send."""
    settings = {"group_min_session_timeout_ms": 500, "log_retention_ms": -1, **settings}
    async with in_process(tmp_path, **settings) as running:
        yield running


async def send(running: Running, *values: bytes, topic: str = "in", partition: int = 0) -> None:
    async with AsyncProducer(running.kafka_address) as producer:
        for value in values:
            await producer.send(topic, value, partition=partition, timestamp_ms=1)


def copier(
    running: Running,
    settings: CopierSettings = SETTINGS,
    copy: Callable[[InputRecord], Any] = COPY,
    *,
    clock: Clock | None = None,
    on_commit: Callable[[CopierFigures], None] = lambda _: None,
) -> Copier:
    clock = clock or Clock()
    return Copier(
        running.kafka_address,
        running.kafka_address,
        settings,
        copy,
        on_commit=on_commit,
        clock_ms=clock.ms,
        clock_s=clock.s,
    )


async def copy_all(running: Running, **changes: Any) -> None:
    """Runs a copier to the end of the input."""
    made = {name: changes.pop(name) for name in ("copy", "clock") if name in changes}
    settings = dataclasses.replace(SETTINGS, ends=True, **changes)
    await asyncio.wait_for(copier(running, settings, **made).run(), 30)


async def stored(running: Running, topic: str = "out", partitions: int = 1) -> Any:
    found = await stored_values(running.kafka_address, topic, partitions)
    return found[0] if partitions == 1 else found


@contextlib.asynccontextmanager
async def positions(running: Running) -> AsyncIterator[Positions]:
    cluster = Cluster(parse_addresses(running.kafka_address), timeout_s=5)
    try:
        yield Positions(Coordinator(cluster, GROUP, timeout_s=5), None)
    finally:
        await cluster.close()


NOBODY = Generation(number=-1, member_id="", partitions=(), confirmed_at_s=0)


async def committed(running: Running, partition: int = 0) -> Position:
    async with positions(running) as found:
        one = (await found.fetch(NOBODY, [("in", partition)]))["in", partition]
    return Position.read(one.offset, one.metadata)


async def commit(running: Running, offset: int, metadata: str) -> None:
    """Commits as a tool does, without a member."""
    async with positions(running) as found:
        await found.commit(NOBODY, {("in", 0): CommittedPosition(offset, metadata)})


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not condition():  # noqa: ASYNC110  two parties that share no event
            await asyncio.sleep(0.01)


async def test_position_and_state_are_one_commit(tmp_path):
    """After an orderly end the group has the next offset and the next sequence, and is clean."""
    async with broker(tmp_path) as running:
        await send(running, b"a", b"b", b"c")
        await copy_all(running)
        position = await committed(running)
        assert (position.offset, position.is_clean) == (3, True)
        (output,) = position.state.partitions
        assert (output.topic, output.partition, output.next_sequence) == ("out", 0, 3)
        await send(running, b"d")
        await copy_all(running)
        assert await stored(running) == [b"a", b"b", b"c", b"d"]
        again = await committed(running)
        assert again.state.producer_id == position.state.producer_id


async def test_older_position_stores_nothing_twice(tmp_path):
    """A position that an earlier run committed, state and all, leads to the same log (H12)."""
    async with broker(tmp_path) as running:
        await send(running, b"a")
        await copy_all(running)
        old = await committed(running)
        await send(running, b"b", b"c")
        await copy_all(running)
        await commit(running, old.offset, old.metadata())
        await send(running, b"d")
        await copy_all(running)
        assert await stored(running) == [b"a", b"b", b"c", b"d"]


@pytest.mark.parametrize("metadata", ["", "by hand"])
async def test_offset_without_state_is_refused(tmp_path, metadata):
    """Nothing is read or sent; an empty one is taken if the user says that it is exact."""
    async with broker(tmp_path) as running:
        await send(running, b"a", b"b")
        await commit(running, 1, metadata)
        with pytest.raises(PositionError, match=r"copiers, in-0: .*"):
            await copy_all(running)
        if metadata:
            with pytest.raises(PositionError, match="by hand"):
                await copy_all(running, bare_offsets=True)
        else:
            await copy_all(running, bare_offsets=True)
            assert await stored(running) == [b"b"]
            await copy_all(running)
            assert await stored(running) == [b"b"]


async def test_start_can_be_refused_or_late(tmp_path):
    """A partition without a position begins where the settings say; none: it does not."""
    async with broker(tmp_path) as running:
        await send(running, b"a")
        with pytest.raises(PositionError, match="no position for in-0"):
            await copy_all(running, starting_offsets="none")
        await copy_all(running, starting_offsets="latest")
        await send(running, b"b")
        await copy_all(running, starting_offsets="none")
        assert await stored(running) == [b"b"]


def to_many(record: InputRecord) -> list[OutputRecord]:
    return [OutputRecord("out", index, record.value) for index in range(8)]


@pytest.mark.parametrize("broker_takes", [4096, 130])
async def test_state_that_does_not_fit_is_refused(tmp_path, broker_takes):
    """Ours and the broker's limit: the message names it, and a higher one continues without a repeat."""
    limits = {"offset_metadata_max_bytes": broker_takes, "num_partitions": 8}
    async with broker(tmp_path, **limits) as running:
        await send(running, b"a")
        most = 130 if broker_takes == 4096 else 4096
        with pytest.raises(PositionError, match="offset_metadata_max_bytes"):
            await copy_all(running, copy=to_many, metadata_characters_max=most)
        assert (await stored(running, partitions=8)) == [[b"a"]] * 8
    limits["offset_metadata_max_bytes"] = 4096
    async with broker(tmp_path, **limits) as running:
        await copy_all(running, copy=to_many)
        assert (await stored(running, partitions=8)) == [[b"a"]] * 8


async def test_deleted_input_is_refused(tmp_path):
    """Records that were deleted before they were copied are not skipped silently."""
    async with broker(tmp_path) as running:
        await send(running, b"a")
        await copy_all(running)
        await send(running, b"b", b"c")
        cluster = Cluster(parse_addresses(running.kafka_address), timeout_s=5)
        partitions = [{"partition_index": 0, "offset": 2}]
        topics = [{"name": "in", "partitions": partitions}]
        answer = await cluster.ask_any("delete_records", {"topics": topics, "timeout": 5000})
        assert answer.topics[0].partitions[0].error_code.value == 0
        await cluster.close()
        with pytest.raises(PositionError, match="deleted before they were copied"):
            await copy_all(running)


async def test_group_of_another_kind_is_refused(tmp_path):
    """An ordinary consumer in the group would commit offsets without states."""
    from aiokafka import AIOKafkaConsumer

    async with broker(tmp_path) as running:
        await send(running, b"a")
        consumer = AIOKafkaConsumer("in", bootstrap_servers=running.kafka_address, group_id=GROUP)
        await consumer.start()
        try:
            with pytest.raises(ProducerError, match="members of another kind"):
                await copy_all(running)
        finally:
            await consumer.stop()


async def test_new_topics_and_partitions_are_found(tmp_path):
    """A pattern takes what is created later, and a topic may get more partitions."""
    settings = dataclasses.replace(SETTINGS, topics=(), pattern="in.*")
    async with broker(tmp_path) as running:
        await send(running, b"a")
        one = copier(running, settings)
        running_copier = asyncio.create_task(one.run())
        await until(lambda: one.figures.records == 1)
        await send(running, b"b", topic="inner")
        await until(lambda: one.figures.records == 2)
        assert one.figures.partitions == 2
        one.stop()
        await running_copier
        assert sorted(await stored(running)) == [b"a", b"b"]


async def test_two_copiers_share(tmp_path):
    """A second member gets half of the partitions; after it has left, the first has all again."""
    async with broker(tmp_path, num_partitions=4) as running:
        for index in range(4):
            await send(running, b"%d" % index, partition=index)
        first, second = copier(running), copier(running)
        tasks = [asyncio.create_task(first.run())]
        await until(lambda: first.figures.partitions == 4)
        tasks.append(asyncio.create_task(second.run()))
        await until(lambda: first.figures.partitions == second.figures.partitions == 2)
        second.stop()
        await until(lambda: first.figures.partitions == 4)
        first.stop()
        await asyncio.gather(*tasks)
        assert await stored(running, partitions=4) == [[b"%d" % index] for index in range(4)]


async def test_ids_are_replaced_before_brokers_forget(tmp_path):
    """A copier that runs for days has an id younger than half the expiration, also where nothing happens."""
    clock = Clock()
    async with broker(tmp_path) as running:
        await send(running, b"a")
        one = copier(running, clock=clock)
        task = asyncio.create_task(one.run())
        await until(lambda: one.figures.records == 1)
        await until_committed(running, lambda position: position.offset == 1)
        first = await committed(running)
        await pass_hours(clock, one, 14)
        old_id = first.state.producer_id
        await until_committed(running, lambda position: position.state.producer_id != old_id)
        await send(running, b"b")
        await until(lambda: one.figures.records == 2)
        one.stop()
        await task
        assert await stored(running) == [b"a", b"b"]
        assert one.figures.generations == 1
        last = await committed(running)
        assert last.state.partitions[0].next_sequence == 1


async def pass_hours(clock: Clock, one: Copier, hours: int) -> None:
    """Moves the clock in steps within which the member's session is confirmed."""
    for _ in range(hours):
        clock.ahead_s += 0.9 * HOUR_S
        moved_at_s = clock.s()
        await until(lambda at=moved_at_s: one.figures.confirmed_at_s >= at)


async def until_committed(running: Running, wanted: Callable[[Position], bool]) -> None:
    async with asyncio.timeout(30):
        while not wanted(await committed(running)):  # noqa: ASYNC110  a group tells nobody
            await asyncio.sleep(0.02)


async def test_silent_member_writes_nothing(tmp_path):
    """A copier that wakes up after a long sleep joins again before it sends a record."""
    clock = Clock()
    async with broker(tmp_path) as running:
        await send(running, b"a")
        # No heartbeat comes before the copier has looked at the clock.
        one = copier(running, dataclasses.replace(SETTINGS, session_timeout_s=60), clock=clock)
        task = asyncio.create_task(one.run())
        await until(lambda: one.figures.records == 1)
        clock.ahead_s += 2 * HOUR_S
        await until(lambda: one.figures.generations == 2)
        one.stop()
        await task
        assert await stored(running) == [b"a"]


async def test_a_stop_ends_although_the_group_is_gone(tmp_path):
    """The last commit cannot be made, which `run` says, and the group cannot be left."""
    async with broker(tmp_path) as running:
        await send(running, b"a")
        settings = dataclasses.replace(SETTINGS, request_timeout_s=0.5)
        made = copier(running, settings)
        copying = asyncio.create_task(made.run())
        await until(lambda: made.figures.records == 1)
    made.stop()
    async with asyncio.timeout(30):
        with pytest.raises(ProducerError, match="the next copier begins"):
            await copying


async def test_a_stop_ends_although_no_broker_was_found():
    """Nothing was read, and nothing is left to do."""
    made = Copier("127.0.0.1:1", "127.0.0.1:1", SETTINGS, COPY)
    copying = asyncio.create_task(made.run())
    await asyncio.sleep(0)
    made.stop()
    async with asyncio.timeout(30):
        await copying


async def test_everything_is_closed_although_the_group_refuses_to_be_left(tmp_path, monkeypatch):
    """As with a broker that has changed its passwords meanwhile: the connections and the lanes' tasks end."""
    leave = GroupMember.leave

    async def refuse(member: GroupMember) -> None:
        await leave(member)
        raise GroupError("refused", 0)

    async with broker(tmp_path) as running:
        await send(running, b"a")
        own = asyncio.all_tasks()
        with monkeypatch.context() as patch:
            patch.setattr(GroupMember, "leave", refuse)
            with pytest.raises(GroupError, match="refused"):
                await copy_all(running)
        left = map(str, asyncio.all_tasks() - own)
        assert not [one for one in left if "client/" in one or "aiokafka" in one]


async def test_long_stop_after_an_orderly_end_is_harmless(tmp_path):
    """After days a new id continues, as nothing was under way."""
    clock = Clock()
    async with broker(tmp_path) as running:
        await send(running, b"a")
        await copy_all(running, clock=clock)
        first = await committed(running)
        clock.ahead_s += 100 * HOUR_S
        await send(running, b"b")
        await copy_all(running, clock=clock)
        assert await stored(running) == [b"a", b"b"]
        assert (await committed(running)).state.producer_id != first.state.producer_id


async def test_copier_that_is_started_each_hour_replaces_its_ids(tmp_path):
    """Ends in order that follow each other are one: nobody writes under the old id after the first of them."""
    clock = Clock()
    async with broker(tmp_path) as running:
        ids = []
        for ahead_h in (0, 11, 12.5):
            clock.ahead_s = ahead_h * HOUR_S
            await send(running, b"%g" % ahead_h)
            await copy_all(running, clock=clock)
            ids.append((await committed(running)).state.producer_id)
        assert await stored(running) == [b"0", b"11", b"12.5"]
        assert ids[0] == ids[1] != ids[2]


async def test_long_stop_after_a_kill_is_refused_where_it_matters(tmp_path):
    """Nothing that brokers may have forgotten is guessed: an output partition that the state does not name."""
    clock = Clock()
    async with broker(tmp_path) as running:
        await send(running, b"a")
        await copy_all(running, clock=clock)
        clean = await committed(running)
        killed = dataclasses.replace(clean, is_clean=False)
        await commit(running, killed.offset, killed.metadata())
        clock.ahead_s += 23 * HOUR_S
        await send(running, b"b")
        with pytest.raises(PositionError, match="stopped for too long"):
            await copy_all(running, copy=to_same_partition(topic="other"), clock=clock)
        await copy_all(running, clock=clock)
        assert await stored(running) == [b"a", b"b"]


async def test_kill_before_the_first_commit_does_not_pass_for_an_orderly_end(tmp_path):
    """No new id takes the place of one under which records may be stored, however long the stop."""
    clock = Clock()
    async with broker(tmp_path) as running:
        await send(running, b"a")
        await copy_all(running, clock=clock)
        assert (await committed(running)).is_clean
        await send(running, b"b")
        killed = copier(running, clock=clock)
        known = killed._positions.commit

        async def commit_nothing_sent(generation: Any, rows: Any) -> None:
            if any(one.offset > 1 for one in rows.values()):
                raise asyncio.CancelledError  # everything is acknowledged; the process ends here
            await known(generation, rows)

        killed._positions.commit = commit_nothing_sent  # type: ignore[method-assign]
        (ended,) = await asyncio.gather(killed.run(), return_exceptions=True)
        assert isinstance(ended, asyncio.CancelledError)
        assert await stored(running) == [b"a", b"b"]
        clock.ahead_s += 13 * HOUR_S
        await copy_all(running, clock=clock)
        assert await stored(running) == [b"a", b"b"]


async def test_forgotten_producer_is_refused(tmp_path):
    """A state that the broker has forgotten is an error, not a repeat."""
    async with broker(tmp_path) as running:
        await send(running, b"a")
        await copy_all(running)
        position = await committed(running)
        unknown = dataclasses.replace(position.state, producer_id=position.state.producer_id + 77)
        partitions = tuple(
            dataclasses.replace(one, producer_id=unknown.producer_id) for one in unknown.partitions
        )
        forged = dataclasses.replace(
            position, state=dataclasses.replace(unknown, partitions=partitions)
        )
        await commit(running, 0, forged.metadata())
        with pytest.raises(DeliveryError, match="does not know this producer any more"):
            await copy_all(running)
        assert await stored(running) == [b"a"]
