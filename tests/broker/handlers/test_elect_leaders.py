"""ElectLeaders, over a real socket: who can be elected, and who waits for it."""

from __future__ import annotations

import asyncio
import datetime
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest

from echoless.broker.controller.controller import Controller
from echoless.broker.controller.election_requests import read_asked
from echoless.broker.controller.elections import ElectionType
from echoless.broker.metadata.live_brokers import LiveBrokers
from echoless.broker.metadata.node_data import NO_LEADER, broker_path
from echoless.broker.metadata.registration import BrokerInfo, Endpoint, encode_broker
from echoless.broker.metadata.topic import StateChange
from echoless.protocol.errors import ErrorCode
from tests.support.in_process import Running
from tests.support.raw_client import RawConnection, create_topic, nested
from tests.support.relocation import relocate

PREFERRED, UNCLEAN = 0, 1


async def elect(
    kafka: RawConnection,
    partitions: Mapping[str, tuple[int, ...]] | None,
    election_type: int = PREFERRED,
    *,
    timeout_s: float = 30,
) -> Any:
    """The whole response of version 2."""
    topics = partitions and tuple(
        nested("elect_leaders", 2, "TopicPartitions")(topic=topic, partitions=numbers)
        for topic, numbers in partitions.items()
    )
    return await kafka.call(
        "elect_leaders",
        2,
        election_type=election_type,
        topic_partitions=topics,
        timeout=datetime.timedelta(seconds=timeout_s),
    )


async def code_of(kafka: RawConnection, partition: int = 0, **options: Any) -> ErrorCode:
    """The code of one partition of `t`."""
    response = await elect(kafka, {"t": (partition,)}, **options)
    ((row,),) = (result.partition_result for result in response.replica_election_results)
    return ErrorCode(row.error_code)


async def add_broker(running: Running, broker_id: int) -> None:
    """Registers another broker, without a process."""
    endpoints = {"PLAINTEXT": Endpoint(host="127.0.0.1", port=1)}
    info = BrokerInfo(broker_id=broker_id, endpoints=endpoints, started_ms=0)
    broker = running.broker
    await broker.tree.create(broker_path(broker_id), encode_broker(info), ephemeral=True)
    broker.membership.brokers[broker_id] = info  # type: ignore[index]


async def set_state(running: Running, *, leader: int, isr: tuple[int, ...]) -> None:
    """Writes a state as a controller, or the leader, would."""
    registry = running.broker.registry
    before = registry.topics["t"].states[0]
    after = before._replace(leader=leader, isr=isr, leader_epoch=before.leader_epoch + 1)
    await registry.change_states([StateChange("t", 0, before, after)])


@asynccontextmanager
async def controlled(running: Running) -> AsyncIterator[None]:
    """The broker's tree has a controller."""
    broker = running.broker
    live_brokers = LiveBrokers(broker.tree)
    await live_brokers.start()
    controller = Controller(
        broker.tree,
        broker.registry,
        live_brokers,
        1,
        unclean=lambda _: False,
        now_ms=lambda: 0,
        elections=broker.metrics.elections,
        internal_replicas={},
    )
    task = asyncio.create_task(controller.run())
    yield
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await live_brokers.close()


@pytest.fixture(autouse=True)
async def _topic(kafka: RawConnection) -> None:
    await create_topic(kafka, "t", 1)


async def test_a_broker_alone_needs_no_election(kafka: RawConnection) -> None:
    """It leads everything already."""
    for election_type in (PREFERRED, UNCLEAN):
        code = await code_of(kafka, election_type=election_type)
        assert code is ErrorCode.ELECTION_NOT_NEEDED


async def test_what_does_not_exist_cannot_be_elected(kafka: RawConnection) -> None:
    """The error is given for each partition."""
    assert await code_of(kafka, 5) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    response = await elect(kafka, {"missing": (0,)})
    (row,) = response.replica_election_results[0].partition_result
    assert row.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_without_partitions_only_those_are_answered_that_need_one(
    kafka: RawConnection, running: Running
) -> None:
    """All are meant; those that are led as they should be are left out."""
    assert (await elect(kafka, None)).replica_election_results == ()
    await relocate(running.broker.registry, "t", 0, (2, 1))
    (result,) = (await elect(kafka, None)).replica_election_results
    assert result.partition_result[0].error_code == ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE


async def test_an_unknown_kind_of_election_is_refused(kafka: RawConnection) -> None:
    """It is refused as a whole, and row by row, as in Kafka."""
    response = await elect(kafka, {"t": (0,)}, 7)
    assert response.error_code == ErrorCode.INVALID_REQUEST
    (row,) = response.replica_election_results[0].partition_result
    assert row.error_code == ErrorCode.INVALID_REQUEST


async def test_the_preferred_leader_has_to_be_alive_and_in_sync(
    kafka: RawConnection, running: Running
) -> None:
    """Otherwise nothing is asked of the controller."""
    await relocate(running.broker.registry, "t", 0, (2, 1))
    assert await code_of(kafka) is ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
    await add_broker(running, 2)
    assert await code_of(kafka) is ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
    assert await read_asked(running.broker.tree) is None


async def test_the_controller_holds_the_election(kafka: RawConnection, running: Running) -> None:
    """It is answered when the new leader is known."""
    await add_broker(running, 2)
    await relocate(running.broker.registry, "t", 0, (2, 1))
    await set_state(running, leader=1, isr=(1, 2))
    async with controlled(running):
        assert await code_of(kafka) is ErrorCode.NONE
    assert running.broker.registry.topics["t"].states[0].leader == 2
    assert await code_of(kafka) is ErrorCode.ELECTION_NOT_NEEDED


async def test_without_a_controller_the_election_is_late(
    kafka: RawConnection, running: Running
) -> None:
    """The request waits in its node for the next controller; more requests join it."""
    await add_broker(running, 2)
    await relocate(running.broker.registry, "t", 0, (2, 1))
    await set_state(running, leader=1, isr=(1, 2))
    assert await code_of(kafka, timeout_s=0.2) is ErrorCode.REQUEST_TIMED_OUT
    await set_state(running, leader=NO_LEADER, isr=(9,))
    code = await code_of(kafka, election_type=UNCLEAN, timeout_s=0.2)
    assert code is ErrorCode.REQUEST_TIMED_OUT
    asked = await read_asked(running.broker.tree)
    assert asked is not None
    assert asked.elections == {("t", 0): ElectionType.UNCLEAN}


async def test_an_outage_can_be_ended_uncleanly(kafka: RawConnection, running: Running) -> None:
    """A living replica leads, although the one in sync is gone; without any there is none to elect."""
    await relocate(running.broker.registry, "t", 0, (9, 1))
    await set_state(running, leader=NO_LEADER, isr=(9,))
    async with controlled(running):
        assert await code_of(kafka, election_type=UNCLEAN) is ErrorCode.NONE
    state = running.broker.registry.topics["t"].states[0]
    assert (state.leader, state.isr) == (1, (1,))
    await relocate(running.broker.registry, "t", 0, (9,))
    await set_state(running, leader=NO_LEADER, isr=(9,))
    code = await code_of(kafka, election_type=UNCLEAN)
    assert code is ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE


async def test_the_first_version_elects_preferred_leaders(kafka: RawConnection) -> None:
    """It has no field for another kind."""
    topic = nested("elect_leaders", 0, "TopicPartitions")(topic="t", partitions=(0,))
    response = await kafka.call("elect_leaders", 0, topic_partitions=(topic,))
    (row,) = response.replica_election_results[0].partition_result
    assert row.error_code == ErrorCode.ELECTION_NOT_NEEDED
