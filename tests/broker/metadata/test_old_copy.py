"""A coordinator whose data was restored from an old copy.

Nothing is served on it, and how to continue.
"""

from __future__ import annotations

import copy

import pytest

from echoless.broker.cluster.catching_up import catch_up_coordinator
from echoless.broker.metadata.node_data import (
    decode_partition_state,
    encode_partition_state,
    partition_state_path,
)
from echoless.broker.metadata.old_copy import OldCopyError
from echoless.broker.metadata.producer_id_block import PATH
from echoless.broker.metadata.topic import NewTopic
from echoless.broker.metadata.tree_mark import mark_path
from echoless.broker.tree.node_tree import CoordinationError
from echoless.broker.tree.nodes import Change
from tests.broker.test_restart import CLUSTER, STAND_ALONE, Host
from tests.fakes.memory_node_tree import MemoryTree

COORDINATORS = pytest.mark.parametrize("coordinator", [STAND_ALONE, CLUSTER])
INVENTED_ID = 2**62


def copy_of(server: MemoryTree) -> MemoryTree:
    """A backup of the current state; take it while no one is connected."""
    backup = MemoryTree()
    backup.nodes = copy.deepcopy(server.nodes)
    return backup


async def stopped(host: Host) -> None:
    """Ends the broker as SIGTERM would."""
    assert host.broker is not None
    await host.broker.stop()


async def ids_of(host: Host, count: int) -> list[int]:
    """Takes this many producer ids."""
    assert host.broker is not None
    return [await host.broker.producer_ids.wait_for_producer_id() for _ in range(count)]


@COORDINATORS
async def test_ids_are_not_handed_out_again(coordinator: str) -> None:
    """Not even those of blocks that were claimed while the broker ran."""
    host = Host(coordinator, producer_id_block_size=10)
    await host.start()
    await stopped(host)
    backup = copy_of(host.server)
    await host.start()
    handed_out = await ids_of(host, 35)
    await stopped(host)
    newest, host.server = host.server, backup
    with pytest.raises(OldCopyError, match=r"old copy.*catch-up"):
        await host.start()
    assert backup.nodes.read(PATH) == copy_of(backup).nodes.read(PATH)
    host.disk = host.disk.after_power_loss()
    host.server = newest
    await host.start()
    assert min(await ids_of(host, 5)) > max(handed_out)
    await stopped(host)


@pytest.mark.slow
@COORDINATORS
async def test_an_old_leader_epoch_is_refused_before_anything_is_written(coordinator: str) -> None:
    """Records of a later epoch are in the log: another leader of an earlier one would be cut for it."""
    host = Host(coordinator)
    broker = await host.start()
    await broker.services.topics.create(NewTopic(name="orders"))
    await host.produce(0)
    await stopped(host)
    backup = copy_of(host.server)
    for sequence in (1, 2, 3):
        await host.start()
        await host.produce(sequence)
        await stopped(host)
    backup.nodes.publish(changes_of_counts(host.server))  # as if no ids had been claimed
    host.server = backup
    before = backup.nodes.read(partition_state_path("orders", 0))
    with pytest.raises(OldCopyError, match=r"orders-0 \(the log has \d+, it has \d\)"):
        await host.start()
    assert backup.nodes.read(partition_state_path("orders", 0)) == before


def changes_of_counts(server: MemoryTree) -> list[Change]:
    """The newest block of producer ids, and the broker's mark if it has one."""
    found = {path: server.nodes.get(path) for path in (PATH, mark_path(1))}
    return [Change(path, node) for path, node in found.items() if node is not None]


@COORDINATORS
async def test_catching_up_makes_the_copy_as_new_as_the_directory(coordinator: str) -> None:
    """The ids and epochs after it are higher than all before; what was stored is still known."""
    host = Host(coordinator, producer_id_block_size=10)
    broker = await host.start()
    await broker.services.topics.create(NewTopic(name="orders"))
    offsets = [await host.produce(0)]
    await stopped(host)
    backup = copy_of(host.server)
    for sequence in (1, 2, 3):
        await host.start()
        offsets.append(await host.produce(sequence))
        handed_out = await ids_of(host, 20)
        await stopped(host)
    host.server = backup
    with pytest.raises(CoordinationError):
        await host.start()
    host.disk = host.disk.after_power_loss()
    lines = await catch_up_of(host)
    mark = [] if coordinator == STAND_ALONE else [mark_path(1)]
    assert [line.split(":")[0] for line in lines] == [PATH, *mark, "orders-0"]
    assert await catch_up_of(host) == []
    await host.start()
    assert [await host.produce(sequence) for sequence in range(4)] == offsets
    assert await host.produce(4) == 4
    assert min(await ids_of(host, 5)) > max(handed_out)
    await stopped(host)


@COORDINATORS
async def test_catching_up_opens_the_logs_with_settings_that_were_changed(coordinator: str) -> None:
    """With the window that the broker was started with, batches would be forgotten that it had remembered."""
    host = Host(coordinator)
    broker = await host.start()
    await broker.settings.alter(
        of_all=True,
        edit=lambda _: {"producer.state.batches.to.retain": "20"},
        validate_only=False,
    )
    await broker.services.topics.create(NewTopic(name="orders"))
    offsets = [await host.produce(sequence) for sequence in range(10)]
    await host.end(is_clean=False)
    await catch_up_of(host)
    await host.start()
    assert [await host.produce(sequence) for sequence in range(10)] == offsets
    await stopped(host)


async def catch_up_of(host: Host) -> list[str]:
    """The effect of the command."""
    return await catch_up_coordinator(host.config, host.environment())


@COORDINATORS
async def test_an_id_that_a_client_made_up_proves_nothing(coordinator: str) -> None:
    """Whatever a log contains, the broker starts and issues its own ids."""
    host = Host(coordinator)
    broker = await host.start()
    await broker.services.topics.create(NewTopic(name="orders"))
    assert await host.produce(0, producer_id=INVENTED_ID) == 0
    first = await ids_of(host, 1)
    await host.restart(is_clean=True)
    await host.restart(is_clean=False)
    assert first < await ids_of(host, 1) < [INVENTED_ID]
    assert await host.produce(0, producer_id=INVENTED_ID) == 0
    await stopped(host)


async def test_a_newer_coordinator_is_what_every_start_finds() -> None:
    """Other brokers claim blocks and lead meanwhile."""
    host = Host(CLUSTER)
    broker = await host.start()
    await broker.services.topics.create(NewTopic(name="orders"))
    await host.produce(0)
    await stopped(host)
    path = partition_state_path("orders", 0)
    node = host.server.nodes.read(path)
    state = decode_partition_state(path, node)
    newer = state._replace(leader_epoch=state.leader_epoch + 7)
    host.server.nodes.publish([Change(path, node._replace(data=encode_partition_state(newer)))])
    await host.start()
    assert await host.produce(0) == 0
    await stopped(host)
