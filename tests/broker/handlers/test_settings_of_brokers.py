"""Settings that change while a broker runs, over real sockets: what is refused, and that each takes effect."""

from __future__ import annotations

import ast
import asyncio
import logging
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from echoless.broker.config.dynamic import DYNAMIC
from echoless.broker.config.names import LogLevel
from echoless.broker.handlers.config_resource import ConfigResourceType
from echoless.broker.partitions.partition_registry import _CONFIGURED_AT_ONCE
from echoless.broker.serve import _follow_log_level
from echoless.protocol.errors import ErrorCode
from tests.broker.handlers.test_describe_configs import describe
from tests.broker.handlers.test_incremental_alter_configs import (
    APPEND,
    DELETE,
    SET,
    SUBTRACT,
    Change,
    alter,
)
from tests.support.in_process import Running, in_process
from tests.support.native_client import NativeConnection
from tests.support.raw_batches import plain_batch
from tests.support.raw_client import ConnectionEndedError, RawConnection, create_topic, nested
from tests.support.raw_produce import PartitionData

BROKER = ConfigResourceType.BROKER
ROOT = Path(__file__).parents[3]


async def change(kafka: RawConnection, *changes: Change, broker: str = "") -> None:
    """Makes the changes, which have to succeed."""
    (row,) = await alter(kafka, (BROKER, broker, changes))
    assert (row.error_code, row.error_message) == (0, None)


async def sources(kafka: RawConnection, name: str) -> list[tuple[str | None, int]]:
    """Each value of a setting of broker 1 with its source, the deciding one first."""
    row = await describe(kafka, BROKER, "1", [name], include_synonyms=True)
    (config,) = row.configs
    assert (config.value, config.config_source) == (
        config.synonyms[0].value,
        config.synonyms[0].source,
    )
    return [(one.value, one.source) for one in config.synonyms]


async def test_settings_are_changed_described_and_deleted(kafka: RawConnection) -> None:
    """For one broker and for all, with Kafka's sources: 2, 3, 4 and 5."""
    name, default = "log.retention.ms", ("604800000", 5)
    await change(kafka, (name, SET, "1h"))
    await change(kafka, (name, SET, "2h"), broker="1")
    assert await sources(kafka, name) == [("7200000", 2), ("3600000", 3), default]
    row = await describe(kafka, BROKER, "")
    assert [(one.name, one.value, one.config_source, one.read_only) for one in row.configs] == [
        (name, "3600000", 3, False)
    ]
    await change(kafka, (name, DELETE, None), broker="1")
    assert await sources(kafka, name) == [("3600000", 3), default]
    await change(kafka, (name, DELETE, None))
    assert await sources(kafka, name) == [default]


async def test_lists_are_extended_and_shortened(kafka: RawConnection, running: Running) -> None:
    """APPEND and SUBTRACT begin with the resource's own value, or the default."""
    name = "log.cleanup.policy"
    await change(kafka, (name, APPEND, "compact"))
    assert running.broker.config.log_cleanup_policy == ("delete", "compact")
    await change(kafka, (name, SUBTRACT, "delete"))
    assert running.broker.config.log_cleanup_policy == ("compact",)


async def test_changes_are_made_whole_or_not_at_all(kafka: RawConnection, running: Running) -> None:
    """One name or value that is refused leaves all as they were, in what is stored too."""
    good: Change = ("num.partitions", SET, "3")
    cases: Sequence[tuple[Sequence[Change], ErrorCode, str]] = [
        ([good, ("broker.id", SET, "2")], ErrorCode.INVALID_REQUEST, "broker.id .*restart"),
        ([good, ("request.size.max", SET, "1MiB")], ErrorCode.INVALID_REQUEST, "restart"),
        ([good, ("num.partitoins", SET, "1")], ErrorCode.INVALID_CONFIG, "num.partitoins"),
        ([good, ("log.retention.ms", SET, "x")], ErrorCode.INVALID_REQUEST, "takes milliseconds"),
        ([good, ("log.retention.ms", SET, None)], ErrorCode.INVALID_REQUEST, "Null value"),
        ([good, ("log.retention.ms", APPEND, "1")], ErrorCode.INVALID_CONFIG, "is no list"),
        ([good, ("num_partitions", DELETE, None)], ErrorCode.INVALID_REQUEST, "twice"),
        ([good, ("log.retention.ms", 9, "1")], ErrorCode.INVALID_REQUEST, "operation"),
        ([good, ("message.max.bytes", SET, "2GB")], ErrorCode.INVALID_REQUEST, "takes bytes"),
        ([good, ("message.max.bytes", SET, "1GiB")], ErrorCode.INVALID_REQUEST, "request_size_max"),
    ]
    for broker in ("", "1"):
        for changes, code, message in cases:
            for validate_only in (False, True):
                (row,) = await alter(kafka, (BROKER, broker, changes), validate_only=validate_only)
                assert row.error_code == code, (changes, row)
                assert re.search(message, row.error_message), row.error_message
    (row,) = await alter(kafka, (BROKER, "", [good]), validate_only=True)
    assert row.error_code == 0
    assert running.broker.config.num_partitions == 1
    assert (await describe(kafka, BROKER, "")).configs == ()


async def test_settings_survive_a_restart_and_are_taken_back_after_it(tmp_path: Path) -> None:
    """With the embedded tree as with ZooKeeper; the logs are opened with them."""
    async with in_process(tmp_path) as running:
        kafka = await RawConnection.open(running.kafka_address)
        await create_topic(kafka, "t", 1)
        await change(kafka, ("log.segment.bytes", SET, "1MiB"))
        await kafka.close()
    async with in_process(tmp_path) as running:
        assert running.broker.partitions["t", 0].log.config.segment_bytes == 2**20
        kafka = await RawConnection.open(running.kafka_address)
        await change(kafka, ("log.segment.bytes", DELETE, None))
        assert running.broker.partitions["t", 0].log.config.segment_bytes == 2**27
        await kafka.close()


# --- each takes effect without a restart ---


async def test_logs_take_new_defaults_unless_their_topic_sets_its_own(
    kafka: RawConnection, running: Running
) -> None:
    """The partitions that are open have them when the change is answered, new ones from the start."""
    await create_topic(kafka, "own", 1, {"retention.ms": "5"})
    await create_topic(kafka, "t", 1)
    await change(
        kafka, ("log.retention.ms", SET, "7"), ("producer.id.expiration.ms", SET, "1m"), broker="1"
    )
    await create_topic(kafka, "new", 1)
    logs = {name: running.broker.partitions[name, 0].log.config for name in ("own", "t", "new")}
    assert {name: one.retention_ms for name, one in logs.items()} == {"own": 5, "t": 7, "new": 7}
    assert {one.producer_id_expiration_ms for one in logs.values()} == {60_000}


async def test_batches_are_judged_by_new_limits(kafka: RawConnection) -> None:
    """A batch above the new limit is refused, one below is stored."""
    await create_topic(kafka, "t", 1)
    await change(kafka, ("message.max.bytes", SET, "500"))
    for size, code in ((600, ErrorCode.MESSAGE_TOO_LARGE), (100, ErrorCode.NONE)):
        data = PartitionData("t", 0, plain_batch([b"x" * size]).encode())
        (answer,) = await kafka.produce(9, -1, [data])
        assert answer.error == code


async def test_topics_are_created_by_new_defaults(kafka: RawConnection, running: Running) -> None:
    """Those that a client asks for too, unless that is switched off."""
    await change(kafka, ("num.partitions", SET, "3"))
    await ask_for(kafka, "a")
    await change(kafka, ("auto.create.topics.enable", SET, "false"))
    await ask_for(kafka, "b")
    topics = running.broker.registry.topics
    assert {name: topic.partition_count for name, topic in topics.items()} == {"a": 3}


async def ask_for(kafka: RawConnection, topic: str) -> Any:
    return await kafka.call(
        "metadata", 4, topics=(kafka_topic(topic),), allow_auto_topic_creation=True
    )


def kafka_topic(name: str) -> Any:
    return nested("metadata", 4, "MetadataRequestTopic")(name=name)


@pytest.mark.parametrize("name", ["max.connections", "max.connections.per.ip"])
async def test_new_connections_are_counted_by_new_limits(
    kafka: RawConnection, running: Running, name: str
) -> None:
    """On both ports; open connections stay, and one that is above the limit is refused."""
    await change(kafka, (name, SET, "1"))
    await is_refused(running)
    await change(kafka, (name, DELETE, None))
    await (await RawConnection.open(running.kafka_address)).close()


async def is_refused(running: Running) -> None:
    other = await RawConnection.open(running.kafka_address)
    with pytest.raises((ConnectionEndedError, ConnectionError)):
        await ask_for(other, "t")
    await other.close()


async def test_addresses_have_new_limits_of_their_own(
    kafka: RawConnection, running: Running
) -> None:
    """The override of one address, while others have none."""
    await change(kafka, ("max.connections.per.ip.overrides", SET, "127.0.0.1:1"))
    await is_refused(running)


async def test_connections_are_made_at_a_new_rate(kafka: RawConnection, running: Running) -> None:
    """A rate that comes and goes: connections that wait are let in by the newest one."""
    await change(kafka, ("max.connection.creation.rate", SET, "1"))
    opened = [await RawConnection.open(running.kafka_address) for _ in range(40)]
    last = asyncio.ensure_future(ask_for(opened[-1], "t"))
    await ask_for(opened[0], "t")
    assert not last.done()
    await change(kafka, ("max.connection.creation.rate", DELETE, None))
    await last
    for connection in opened:
        await connection.close()


async def test_a_log_that_became_due_is_cleaned_without_waiting(
    kafka: RawConnection, running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pause of the cleaner that has begun, and would last for 15 s, ends when its settings change."""
    looked = asyncio.Event()

    async def look() -> int:
        looked.set()
        return 0

    monkeypatch.setattr(running.broker.cleaner, "clean_due", look)
    await change(kafka, ("log.cleaner.backoff.ms", SET, "1h"))
    await looked.wait()


async def test_the_native_port_has_the_same_limits(
    kafka: RawConnection, native: NativeConnection
) -> None:
    """Both ports count connections together, and judge batches by the same rules."""
    await create_topic(kafka, "t", 1)
    await change(kafka, ("message.max.bytes", SET, "100"))
    answer = await native.call(
        "produce",
        topic="t",
        partition=0,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        records=[{"value": b"x" * 200}],
    )
    assert answer["error"]["code"] == ErrorCode.MESSAGE_TOO_LARGE


def read_at_once(node: ast.AST) -> Iterator[ast.AST]:
    """The parts of a function that are evaluated when it is called: not those of a `lambda`."""
    yield node
    if not isinstance(node, ast.Lambda):
        for child in ast.iter_child_nodes(node):
            yield from read_at_once(child)


def test_no_part_of_the_broker_keeps_a_copy_of_a_setting_that_can_change() -> None:
    """No constructor reads one, but for those that `settings_changed` beside them brings up to date."""
    found = set()
    for path in (ROOT / "broker").rglob("*.py"):
        if path.parts[-2] == "config":
            continue
        for function in ast.walk(ast.parse(path.read_text())):
            if isinstance(function, ast.FunctionDef) and function.name in {"__init__", "of"}:
                found |= {
                    (path.relative_to(ROOT).as_posix(), one.attr)
                    for one in read_at_once(function)
                    if isinstance(one, ast.Attribute)
                    and one.attr in DYNAMIC
                    and ast.unparse(one.value).endswith("config")
                }
    assert found == {
        ("broker/network/server.py", "connections_max"),
        ("broker/network/server.py", "connections_max_per_ip_overrides"),
        ("broker/quotas/connection_rates.py", "connection_creation_rate_max"),
    }


async def test_lines_are_logged_from_a_new_level_on(kafka: RawConnection, running: Running) -> None:
    """`serve` listens for it; here the same function does."""
    before = logging.getLogger().level
    try:
        await change(kafka, ("log.level", SET, "error"))
        assert running.broker.config.log_level is LogLevel.ERROR
        await _follow_log_level(running.broker.config, frozenset({"log_level"}))
        assert logging.getLogger().level == logging.ERROR
    finally:
        logging.getLogger().setLevel(before)


async def test_names_that_no_broker_knows_can_be_deleted(
    kafka: RawConnection, running: Running
) -> None:
    """Whatever is stored, by another release or by Apache Kafka; deleting what is not there succeeds."""
    stored = {"log.cleaner.threads": "2", "max.connections": "5000"}
    await running.broker.settings.alter(
        of_all=True, edit=lambda _: dict(stored), validate_only=False
    )
    assert running.broker.config.connections_max == 5000
    await change(kafka, ("log.cleaner.threads", DELETE, None), ("nonsense", DELETE, None))
    assert running.broker.settings._seen[0] == {"max.connections": "5000"}
    await change(kafka, ("connections_max", DELETE, None))
    assert running.broker.settings._seen[0] == {}


async def test_a_change_reaches_all_partitions_of_a_large_topic_in_several_turns(
    kafka: RawConnection, running: Running
) -> None:
    """A setting of the topic that changes meanwhile is not undone by what was read before it."""
    registry, count = running.broker.registry, 5 * _CONFIGURED_AT_ONCE
    await create_topic(kafka, "t", count)
    held = [running.broker.partitions["t", index] for index in range(count)]
    changing = asyncio.ensure_future(change(kafka, ("log.retention.ms", SET, "7")))
    has_begun = False
    while not has_begun:
        await asyncio.sleep(0)
        has_begun = held[0].log.config.retention_ms == 7
    assert held[-1].log.config.retention_ms != 7
    await registry.set_topic_config("t", {"retention.ms": "5"})
    await changing
    assert {one.log.config.retention_ms for one in held} == {5}
