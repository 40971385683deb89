"""Settings of running brokers in the tree: followed by all of them, in force before a change is answered."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping

import pytest

from echoless.broker.config.loading import Config
from echoless.broker.metadata.broker_settings import OF_ALL, BrokerSettings
from echoless.broker.metadata.config_nodes import CHANGES
from echoless.broker.metadata.node_data import NodeDataError
from echoless.protocol.errors import ErrorCode, KafkaError
from tests.fakes.memory_node_tree import MemoryTree, turns

PARTITIONS = "num.partitions"


async def started(server: MemoryTree, broker_id: int = 1) -> BrokerSettings:
    settings = BrokerSettings(Config(broker_id=broker_id))
    await settings.start(server.connect(), is_shared=True)
    return settings


async def set_to(settings: BrokerSettings, values: Mapping[str, str], *, of_all: bool) -> None:
    await settings.alter(of_all=of_all, edit=lambda _: dict(values), validate_only=False)


async def test_a_change_for_all_brokers_reaches_each_of_them() -> None:
    """It is in force where it was made at once, elsewhere with the watch, and after a restart."""
    server = MemoryTree()
    first, second = await started(server), await started(server, 2)
    await set_to(first, {PARTITIONS: "3"}, of_all=True)
    assert first.dynamic.config.num_partitions == 3
    await turns()
    assert second.dynamic.config.num_partitions == 3
    await set_to(second, {PARTITIONS: "5"}, of_all=False)
    await turns()
    assert [one.dynamic.config.num_partitions for one in (first, second)] == [3, 5]
    again = await started(server, 2)
    assert again.dynamic.config.num_partitions == 5
    for one in (first, second, again):
        await one.close()


async def test_the_nodes_are_kafkas() -> None:
    """Path, JSON and announcement, as in docs/formats/coordination-nodes.md."""
    server = MemoryTree()
    settings, tree = await started(server), server.connect()
    await set_to(settings, {"max.connections": "7"}, of_all=False)
    await set_to(settings, {PARTITIONS: "3"}, of_all=True)
    own = await tree.read("/config/brokers/1")
    assert own.data == b'{"version":1,"config":{"max.connections":"7"}}'
    assert json.loads((await tree.read(OF_ALL)).data)["config"] == {PARTITIONS: "3"}
    announced = [
        json.loads((await tree.read(f"{CHANGES}/{name}")).data)["entity_path"]
        for name in await tree.children(CHANGES)
    ]
    assert announced == ["brokers/1", "brokers/<default>"]
    await settings.close()


async def test_listeners_have_the_change_before_it_is_answered() -> None:
    """They get the names whose values changed, and none for a change that changes nothing."""
    settings = await started(MemoryTree())
    heard: list[frozenset[str]] = []

    async def listener(names: frozenset[str]) -> None:
        await turns(3)
        heard.append(names)

    settings.listen(listener)
    await set_to(settings, {PARTITIONS: "3"}, of_all=True)
    assert heard == [{"num_partitions"}]
    await set_to(settings, {PARTITIONS: "3"}, of_all=False)
    assert heard == [{"num_partitions"}]
    await settings.close()


async def test_a_listener_that_was_cut_short_hears_of_the_change_again() -> None:
    """A partition that has not got a setting must not keep the old one for ever."""
    settings = await started(MemoryTree())
    failures = [RuntimeError("cut short")]
    heard: list[frozenset[str]] = []

    async def listener(names: frozenset[str]) -> None:
        if failures:
            raise failures.pop()
        heard.append(names)

    settings.listen(listener)
    with pytest.raises(RuntimeError):
        await set_to(settings, {PARTITIONS: "3"}, of_all=True)
    await settings.refresh()
    assert heard == [{"num_partitions"}]
    await settings.close()


async def test_validating_changes_nothing() -> None:
    """Refuses as the change itself would; nothing is stored or announced."""
    server = MemoryTree()
    settings = await started(server)

    def refuse(_: Mapping[str, str]) -> dict[str, str]:
        raise KafkaError(ErrorCode.INVALID_CONFIG, "no")

    with pytest.raises(KafkaError):
        await settings.alter(of_all=True, edit=refuse, validate_only=True)
    with pytest.raises(KafkaError, match="request_size_max"):
        await settings.alter(
            of_all=True, edit=lambda _: {"message.max.bytes": "2000000000"}, validate_only=True
        )
    await settings.alter(of_all=True, edit=lambda _: {PARTITIONS: "3"}, validate_only=True)
    assert settings.dynamic.config.num_partitions == 1
    assert (await server.connect().read_many([OF_ALL])) == [None]
    await settings.close()


async def test_changes_of_two_brokers_at_once_are_both_kept() -> None:
    """The tree orders them; the later one is made to what the earlier one left."""
    server = MemoryTree()
    first, second = BrokerSettings(Config(broker_id=1)), await started(server, 2)
    tree = server.connect()
    await first.start(tree, is_shared=True)

    async def rival() -> None:
        await second.alter(
            of_all=True,
            edit=lambda stored: {**stored, "log.retention.ms": "5"},
            validate_only=False,
        )

    tree.before_next_change(rival)
    await first.alter(
        of_all=True, edit=lambda stored: {**stored, PARTITIONS: "3"}, validate_only=False
    )
    await turns()
    for one in (first, second):
        assert (one.dynamic.config.num_partitions, one.dynamic.config.log_retention_ms) == (3, 5)
        await one.close()


async def test_a_node_that_cannot_be_read_stops_the_start_and_changes_nothing_later(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The values in force stay: a default would delete records that the setting keeps."""
    server = MemoryTree()
    settings, tree = await started(server), server.connect()
    await set_to(settings, {PARTITIONS: "3"}, of_all=True)
    await tree.write(OF_ALL, b"{", (await tree.read(OF_ALL)).version)
    with caplog.at_level(logging.INFO):
        await tree.create_sequential(f"{CHANGES}/config_change_")
        await turns()
    assert OF_ALL in caplog.text
    assert settings.dynamic.config.num_partitions == 3
    with pytest.raises(NodeDataError, match=OF_ALL):
        await started(server, 2)
    await settings.close()
