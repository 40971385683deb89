"""Joining and leaving a cluster, over a coordinator and disks in memory."""

from __future__ import annotations

import asyncio
import itertools
import random

import pytest

from echoless.broker.broker import Broker
from echoless.broker.cluster.addresses import client_addresses
from echoless.broker.config.loading import LogFlush
from echoless.broker.handlers import metadata
from echoless.broker.metadata.node_data import (
    NO_LEADER,
    broker_path,
    decode_partition_state,
    encode_partition_state,
    partition_state_path,
    topic_path,
)
from echoless.broker.metadata.producer_ids import PATH as PRODUCER_ID_BLOCK
from echoless.broker.metadata.registration import BrokerIdInUseError
from echoless.broker.metadata.topic import NewTopic
from echoless.broker.metadata.topic_registry import TopicRegistry
from echoless.broker.network.request import Peer
from echoless.broker.tree.node_tree import CoordinationError
from echoless.protocol.errors import ErrorCode, KafkaError
from echoless.protocol.metadata_request import WantedTopic
from echoless.protocol.record_batch import read_header
from echoless.storage.file_system import StorageError
from tests.broker.cluster.one_member import PATIENCE_S, Member
from tests.fakes.memory_file_system import MemoryFileSystem
from tests.fakes.memory_node_tree import MemoryNodeTree, MemoryTree, turns
from tests.storage.log_workload import make_batch
from tests.storage.one_log import NOW_MS

HAND_OVER_S = 3.0


async def test_a_member_leads_again_after_a_restart_in_a_later_epoch() -> None:
    """The partitions led in the last epoch are withdrawn first, and the controller gives them back."""
    server, disk = MemoryTree(), MemoryFileSystem()
    first = Member(server, disk)
    await first.start()
    await first.broker.services.topics.create(NewTopic(name="orders"))
    await first.led("orders")
    await first.broker.hand_over(HAND_OVER_S)
    await first.broker.stop()
    second = Member(server, disk)
    await second.start()
    await second.led("orders")
    assert second.broker.services.partitions.find("orders", 0).leader_epoch >= 2
    await second.broker.stop()


async def test_a_topic_that_needs_more_brokers_is_worth_asking_for_again() -> None:
    """While a cluster starts, its brokers come one by one: a client shall wait, not give up."""
    member = Member(MemoryTree(), MemoryFileSystem(), default_replication_factor=3)
    await member.start()
    wanted = [WantedTopic("orders")]
    answer = metadata.describe(
        member.broker.services, wanted, may_create=True, peer=Peer(1, "127.0.0.1:5000"), rights=None
    )
    assert not isinstance(answer, dict)
    (topic,) = (await answer)["topics"]
    assert topic["error_code"] is ErrorCode.LEADER_NOT_AVAILABLE
    await member.broker.stop()


async def test_a_broker_that_is_not_registered_is_no_coordinator_for_now() -> None:
    """Between two sessions a consumer has to retry: any other code would end it."""
    member = Member(MemoryTree(), MemoryFileSystem())
    await member.start()
    broker = member.broker
    await broker.groups.topic.until_created()
    await member.until(lambda: _coordinator(broker) == 1)
    await member.tree.delete("/brokers/ids/1")
    while broker.membership.brokers:
        await member.tree.children("/brokers")
    assert _coordinator(broker) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    await broker.stop()


def _coordinator(broker: Broker) -> int:
    """The broker that coordinates a group, or the error."""
    try:
        return broker.groups.coordinator_of("g")
    except KafkaError as error:
        return error.code


async def test_clients_are_never_told_that_nobody_is_there() -> None:
    """All sessions may end at once: librdkafka then forgets every address, and never asks again."""
    member = Member(MemoryTree(), MemoryFileSystem())
    await member.start()
    broker = member.broker
    known = client_addresses(broker.membership, Peer(1, "127.0.0.1:5000"))
    assert list(known) == [1]
    await member.tree.delete("/brokers/ids/1")
    await member.until(lambda: not broker.membership.brokers)
    assert client_addresses(broker.membership, Peer(1, "127.0.0.1:5000")) == known
    await broker.stop()


async def test_an_empty_disk_is_no_replacement_for_the_last_replica() -> None:
    """A broker that comes back without its data does not lead what only it had."""
    server = MemoryTree()
    first = Member(server, MemoryFileSystem())
    await first.start()
    await first.broker.services.topics.create(NewTopic(name="orders"))
    await first.led("orders")
    await first.broker.stop()
    with pytest.raises(CoordinationError, match="orders-0"):
        await Member(server, MemoryFileSystem()).start()


@pytest.mark.parametrize("log_flush", LogFlush)
async def test_an_empty_disk_is_in_sync_with_nobody(log_flush: LogFlush) -> None:
    """Not even where all that a broker writes is on disk: what it had was on another disk."""
    server, disk = MemoryTree(), MemoryFileSystem()
    first = Member(server, disk, log_flush=log_flush)
    await first.start()
    await first.broker.services.topics.create(NewTopic(name="orders"))
    await first.led("orders")
    await first.broker.stop()
    path, tree = partition_state_path("orders", 0), server.connect()
    node = await tree.read(path)  # as if both replicas had been killed at once
    state = decode_partition_state(path, node)._replace(isr=(1, 2), leader=NO_LEADER)
    await tree.write(path, encode_partition_state(state), node.version)
    second = Member(server, MemoryFileSystem(), log_flush=log_flush)
    await second.start()
    await turns()
    state = decode_partition_state(path, await tree.read(path))
    assert (state.leader, state.isr) == (NO_LEADER, (2,))
    await second.broker.stop()


async def test_a_coordinator_that_has_lost_everything_costs_no_records() -> None:
    """To a coordinator that knows no topics every partition on disk looks like a stray."""
    disk = MemoryFileSystem()
    first = Member(MemoryTree(), disk)
    await first.start()
    await first.broker.services.topics.create(NewTopic(name="orders"))
    await first.led("orders")
    await first.broker.stop()
    for _ in range(2):
        second = Member(MemoryTree(), disk)
        with pytest.raises(CoordinationError, match="knows no cluster"):
            await second.start()
    assert disk.is_directory("/data/orders-0")


async def test_a_failed_disk_is_told_when_the_coordinator_is_back() -> None:
    """A leader that can neither read nor write must not stay in office for bad luck."""
    member = Member(MemoryTree(), MemoryFileSystem())
    await member.start()
    member.tree.suspend()
    member.broker.fail_storage(StorageError("/data", "gone"))
    await turns()
    member.tree.resume()
    await member.until(member.is_told_to_leave)
    await member.broker.stop()


async def test_a_disk_that_failed_between_sessions_is_told_by_the_next_one() -> None:
    """The broker is registered again, and not as one that could lead."""
    member = Member(MemoryTree(), MemoryFileSystem())
    await member.start()
    member.tree.expire_session()
    await turns()
    member.broker.fail_storage(StorageError("/data", "gone"))
    member.tree.reconnect()
    await member.until(member.is_told_to_leave)
    await member.broker.stop()


async def test_what_became_durable_in_doubt_is_committed_after_it() -> None:
    """Without another append: the producer of the last batch may have nothing else to send."""
    member = Member(MemoryTree(), MemoryFileSystem(), log_flush=LogFlush.COMMIT)
    await member.start()
    await member.broker.services.topics.create(NewTopic(name="orders"))
    await member.led("orders")
    partition, membership = (
        member.broker.services.partitions.find("orders", 0),
        member.broker.membership,
    )
    await member.until(lambda: membership.is_proved)
    member.tree.suspend()
    batch = make_batch(producer_id=1, epoch=0, sequence=0, count=1, size=20, timestamp=NOW_MS)
    partition.log.append(batch, read_header(batch), partition.leader_epoch, NOW_MS)
    await member.until(lambda: not membership.is_proved)
    partition.mark_dirty()  # the flush ends in the doubt
    await member.until(lambda: partition.durable_offset == 1)
    await turns()
    assert partition.high_watermark == 0
    member.tree.resume()
    await member.until(lambda: partition.high_watermark == 1)
    await member.broker.stop()


async def test_a_member_without_a_proof_of_its_session_says_so_until_it_has_one() -> None:
    """A broker that would acknowledge nothing must not be called ready."""
    member = Member(MemoryTree(), MemoryFileSystem())
    await member.start()
    membership = member.broker.membership
    await member.until(lambda: membership.unready_reason is None)
    assert membership.unproved_s == 0.0
    member.tree.suspend()
    await member.until(lambda: membership.unready_reason is not None)
    assert "no proof of its session, which is suspended" in str(membership.unready_reason)
    assert member.tree.session_problem in str(membership.unready_reason)
    await member.until(lambda: membership.unproved_s > 0.0)
    member.tree.resume()
    await member.until(lambda: membership.unready_reason is None)
    member.tree.expire_session()
    await member.until(lambda: "lost" in str(membership.unready_reason))
    member.tree.reconnect()
    await member.until(lambda: membership.unready_reason is None)
    await member.broker.hand_over(HAND_OVER_S)
    assert "about to stop" in str(membership.unready_reason)
    await member.broker.stop()


async def test_a_member_that_cannot_join_again_says_why() -> None:
    """The operator looks at `/ready` first, and it is the only place that always has the reason."""
    member = Member(MemoryTree(), MemoryFileSystem())
    await member.start()
    await member.broker.services.topics.create(NewTopic(name="orders"))
    member.tree.expire_session()
    path, other = topic_path("orders"), member.server.connect()
    node = await other.read(path)
    await other.write(path, b"no JSON", node.version)
    member.tree.reconnect()
    membership = member.broker.membership
    await member.until(lambda: "cannot join the cluster again" in str(membership.unready_reason))
    assert "orders" in str(membership.unready_reason)
    await member.broker.stop()


async def test_an_older_copy_of_the_tree_costs_a_running_member_no_logs() -> None:
    """Topics that it lacks look deleted; what the copy has forgotten of producer ids shows that they are not."""
    disk = MemoryFileSystem()
    member = Member(MemoryTree(), disk)
    await member.start()
    await member.broker.services.topics.create(NewTopic(name="orders"))
    await member.led("orders")
    member.tree.expire_session()
    other = member.server.connect()
    registry = TopicRegistry(other, rng=random.Random(1))
    await registry.load()
    await registry.delete_topic("orders")
    await other.delete(PRODUCER_ID_BLOCK)
    refusals: list[CoordinationError] = []
    check = member.broker.registry.check_tree

    async def noted_check() -> None:
        try:
            await check()
        except CoordinationError as error:
            refusals.append(error)
            raise

    member.broker.registry.check_tree = noted_check
    member.tree.reconnect()
    await member.until(lambda: bool(refusals) or member.broker.session_lost.is_set())
    await turns()
    assert disk.is_directory("/data/orders-0")
    await member.broker.stop()


async def test_a_member_ends_once_the_coordinator_has_an_old_copy() -> None:
    """It reads nothing more: topics that the copy lacks would be deleted. The next start decides."""
    member = Member(MemoryTree(), MemoryFileSystem())
    await member.start()
    await member.broker.services.topics.create(NewTopic(name="orders"))
    await member.led("orders")
    member.tree.old_copy = "its last transaction is 0x1"
    member.tree.expire_session()
    await member.until(member.broker.session_lost.is_set)
    assert not member.broker.services.partitions.find("orders", 0).is_leader
    await member.broker.stop()


@pytest.mark.parametrize("is_first", [False, True])
@pytest.mark.parametrize("applied", [False, True])
async def test_a_start_outlives_a_dropped_connection_at_any_change(
    *, applied: bool, is_first: bool
) -> None:
    """The answer is lost, whether the change was made or not, and the connection is back a little later."""
    server, disk = MemoryTree(), MemoryFileSystem()
    for count in itertools.count():
        if is_first:
            server, disk = MemoryTree(), MemoryFileSystem()
        member = Member(server, disk)
        tree, has_dropped = member.tree, asyncio.Event()
        tree.session_timeout_s = PATIENCE_S

        async def drop(tree: MemoryNodeTree = tree, dropped: asyncio.Event = has_dropped) -> None:
            dropped.set()
            tree.lose_next_reply(applied=applied)
            tree.suspend()
            asyncio.get_running_loop().call_later(0.001, tree.resume)

        for _ in range(count):
            tree.before_next_change(turns)
        tree.before_next_change(drop)
        await member.start()
        assert await tree.read(broker_path(1))
        if not is_first and not count:
            await member.broker.services.topics.create(NewTopic(name="orders"))
            await member.led("orders")
        await member.broker.stop()
        if not has_dropped.is_set():
            break
    assert count > 5


async def test_a_start_that_loses_the_coordinator_for_good_says_so() -> None:
    """After as long as a session lasts."""
    member = Member(MemoryTree(), MemoryFileSystem())

    async def drop() -> None:
        member.tree.suspend()

    member.tree.before_next_change(drop)
    with pytest.raises(CoordinationError, match="was lost during the start, and is not back after"):
        await member.start()


async def test_what_was_taken_is_acknowledged_before_others_may_lead() -> None:
    """A leader that follows could not tell the producers; meanwhile nothing more is taken."""
    member = Member(MemoryTree(), MemoryFileSystem(), log_flush=LogFlush.COMMIT)
    member.tree.session_timeout_s = 60.0  # no doubt, however slow this machine is
    await member.start()
    await member.broker.services.topics.create(NewTopic(name="orders"))
    await member.led("orders")
    partition, membership = (
        member.broker.services.partitions.find("orders", 0),
        member.broker.membership,
    )
    await member.until(lambda: membership.is_proved)
    batch = make_batch(producer_id=1, epoch=0, sequence=0, count=1, size=20, timestamp=NOW_MS)
    partition.log.append(batch, read_header(batch), partition.leader_epoch, NOW_MS)
    leaving = asyncio.create_task(member.broker.hand_over(HAND_OVER_S))
    await member.until(lambda: not membership.takes_records)
    with pytest.raises(KafkaError) as refusal:
        partition.append(batch, read_header(batch), NOW_MS)
    assert refusal.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
    await turns()
    assert not member.is_told_to_leave()
    partition.mark_dirty()  # only now it is flushed
    await leaving
    assert partition.high_watermark == 1
    assert member.is_told_to_leave()
    await member.broker.stop()


async def test_followers_are_excused_for_the_time_of_a_doubt() -> None:
    """Fetches that this broker refused meanwhile do not count against them."""
    member = Member(MemoryTree(), MemoryFileSystem())
    await member.start()
    await member.broker.services.topics.create(NewTopic(name="orders"))
    await member.led("orders")
    partition, membership = (
        member.broker.services.partitions.find("orders", 0),
        member.broker.membership,
    )
    await member.until(lambda: membership.is_proved)
    assert partition.in_sync is not None
    loop, metrics = asyncio.get_running_loop(), member.broker.metrics
    partition.in_sync.change_replicas((1, 2), caught_up_s := loop.time())
    doubts = metrics.leadership_doubts_total  # a slow machine may have had some before
    member.tree.suspend()
    await member.until(lambda: metrics.leadership_doubts_total > doubts)
    began_s = loop.time()
    await member.until(lambda: loop.time() > began_s)  # a doubt that the loop's clock can tell
    member.tree.resume()
    await member.until(lambda: membership.is_proved)
    assert partition.in_sync._followers[2].caught_up_s > caught_up_s
    await member.broker.stop()


@pytest.mark.slow
async def test_a_broker_id_that_is_in_use_is_refused() -> None:
    """Two brokers with one id: the second waits for a session, no longer, and changes nothing."""
    server = MemoryTree()
    first = Member(server, MemoryFileSystem())
    await first.start()
    await first.broker.services.topics.create(NewTopic(name="orders"))
    await first.led("orders")
    with pytest.raises(BrokerIdInUseError, match="broker id 1 is in use"):
        await Member(server, MemoryFileSystem()).start()
    partition = first.broker.services.partitions.find("orders", 0)
    assert partition.is_leader
    assert partition.leader_id != NO_LEADER
    await first.broker.stop()
