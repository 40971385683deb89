"""ACLs shared with Apache Kafka 3.9 in ZooKeeper: each obeys what the other writes, and its tools find it.

The numbers are those of the vectors that Echoless was built by.
"""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from random import Random

import pytest

from echoless.broker.authorization.acl_store import LIST_INTERVAL_S, AclStore
from echoless.broker.config.loading import Config
from echoless.broker.config.names import Authorizer
from echoless.broker.config.values import Principals
from echoless.broker.metadata.topic import NewTopic
from echoless.broker.network.request import ANONYMOUS
from echoless.broker.tree.zookeeper import ZooKeeperNodeTree
from echoless.protocol.acl import AclOperation, Permission
from tests.broker.handlers.acl_requests import (
    ALLOW,
    DENY,
    LITERAL,
    PREFIXED,
    TOPIC,
    WRITE,
    Row,
    create,
    describe,
)
from tests.support.acls import acl
from tests.support.apache_kafka import JARS, KafkaVersion
from tests.support.in_process import Running, in_process
from tests.support.raw_batches import plain_batch
from tests.support.raw_client import RawConnection, nested
from tests.support.raw_produce import PartitionData
from tests.support.zookeeper import ZooKeeper
from tests.support.zookeeper_kafka import ZooKeeperKafka
from tests.toolchain import require

pytestmark = pytest.mark.cluster

KAFKAS_BROKER = 7
BATCH = plain_batch([b"value"]).encode()
BY_ANNOUNCEMENT_S = LIST_INTERVAL_S / 2
"""Too short for the listing that finds what was not announced."""
COMMAND_TIMEOUT_S = 120.0


@pytest.fixture(scope="module")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeper]:
    require("kafka")
    server = ZooKeeper(tmp_path_factory.mktemp("zookeeper"))
    server.start()
    yield server
    server.kill()


@pytest.fixture
def hosts(zookeeper: ZooKeeper) -> str:
    return zookeeper.fresh_hosts()


async def kafka_acls(*arguments: str) -> str:
    """Runs kafka-acls.sh and returns its output."""
    command = [
        "java",
        *KafkaVersion.V3_9.quick_start_jvm,
        "-cp",
        f"{JARS}/*",
        "kafka.admin.AclCommand",
        *arguments,
    ]
    done = await asyncio.to_thread(
        subprocess.run,
        command,
        check=False,
        capture_output=True,
        text=True,
        timeout=COMMAND_TIMEOUT_S,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def in_zookeeper(hosts: str) -> tuple[str, ...]:
    """Arguments by which kafka-acls.sh reads and writes nodes itself."""
    return (
        "--authorizer",
        "kafka.security.authorizer.AclAuthorizer",
        "--authorizer-properties",
        f"zookeeper.connect={hosts}",
    )


async def until(code: int, ask: Callable[[], Awaitable[int]]) -> None:
    """Asks until the answer is this code; fails once it can no longer come from an announcement."""
    async with asyncio.timeout(BY_ANNOUNCEMENT_S):
        last = await ask()
        while last != code:
            await asyncio.sleep(0.02)
            last = await ask()


async def produced(kafka: RawConnection, topic: str) -> int:
    (answer,) = await kafka.produce(9, -1, [PartitionData(topic, 0, BATCH)])
    return answer.error


async def created(kafka: RawConnection, topic: str) -> int:
    """The code; a Kafka broker that has just started does not know itself yet."""
    new = nested("create_topics", 2, "CreatableTopic")(
        name=topic, num_partitions=1, replication_factor=1, assignments=(), configs=()
    )
    response = await kafka.call("create_topics", 2, topics=(new,), validate_only=False)
    return int(response.topics[0].error_code.value)


@pytest.fixture
async def running(tmp_path: Path, hosts: str) -> AsyncIterator[Running]:
    """An Echoless broker in ZooKeeper, with the topics `orders` and `other`."""
    settings = {"coordinator": f"zookeeper://{hosts}", "authorizer": Authorizer.ACL}
    async with in_process(tmp_path, **settings) as running:
        for name in ("orders", "other"):
            await running.broker.services.topics.create(NewTopic(name=name))
        yield running


async def test_what_kafkas_tool_writes_to_zookeeper_is_obeyed(running: Running, hosts: str) -> None:
    """58: literal and prefixed, allowed, denied and removed, without a restart."""
    kafka = await RawConnection.open(running.kafka_address)
    assert await produced(kafka, "orders") == 29
    at = in_zookeeper(hosts)
    grant = ("--allow-principal", ANONYMOUS, "--operation", "Write")
    await kafka_acls(*at, "--add", *grant, "--topic", "orders")
    await until(0, lambda: produced(kafka, "orders"))
    assert await produced(kafka, "other") == 29

    prefixed = ("--topic", "ord", "--resource-pattern-type", "prefixed")
    deny = ("--deny-principal", ANONYMOUS, "--operation", "Write")
    await kafka_acls(*at, "--add", *deny, *prefixed)
    await until(29, lambda: produced(kafka, "orders"))

    await kafka_acls(*at, "--remove", "--force", *deny, *prefixed)
    await until(0, lambda: produced(kafka, "orders"))
    await kafka.close()


async def test_kafkas_tool_works_against_echoless(tmp_path: Path) -> None:
    """kafka-acls.sh --bootstrap-server adds, lists and removes; `--producer --idempotent` too."""
    require("java", "kafka")
    settings = {"authorizer": Authorizer.ACL, "super_users": Principals([ANONYMOUS])}
    async with in_process(tmp_path, **settings) as running:
        at = ("--bootstrap-server", running.kafka_address)
        alice = ("--allow-principal", "User:alice")
        kafka = await RawConnection.open(running.kafka_address)
        await kafka_acls(*at, "--add", *alice, "--producer", "--idempotent", "--topic", "orders")
        _, found = await describe(kafka, resource_type_filter=TOPIC)
        assert {(one.name, one.operation) for one in found} == {
            ("orders", int(one))
            for one in (AclOperation.WRITE, AclOperation.DESCRIBE, AclOperation.CREATE)
        }
        prefix = Row("or", pattern_type=PREFIXED, permission=DENY, operation=WRITE, host="::1")
        await create(kafka, prefix)
        listed = await kafka_acls(
            *at, "--list", "--topic", "orders", "--resource-pattern-type", "match"
        )
        assert "patternType=LITERAL" in listed
        assert "patternType=PREFIXED" in listed
        assert "host=0:0:0:0:0:0:0:1" in listed
        removal = ("--remove", "--force", "--topic", "orders")
        await kafka_acls(*at, *removal, "--resource-pattern-type", "match")
        assert await describe(kafka, resource_type_filter=TOPIC) == (0, set())
        await kafka.close()


@pytest.fixture
async def store(hosts: str) -> AsyncIterator[AclStore]:
    """The ACLs as an Echoless broker keeps them; a broker would join Kafka's cluster."""
    tree = await ZooKeeperNodeTree.open(Config(coordinator=f"zookeeper://{hosts}"))
    store = AclStore(tree, Random(1), lambda: None)
    await store.start()
    yield store
    await store.close()
    await tree.close()


async def test_kafka_obeys_and_lists_what_echoless_writes(
    tmp_path: Path, hosts: str, store: AclStore
) -> None:
    """59: ACLs from before Kafka's start and from while it runs, and those that are removed."""

    async def add(
        permission: Permission, operation: AclOperation, name: str, *, prefixed: bool = False
    ) -> None:
        pattern, entries = acl(permission, operation, name, prefixed=prefixed)
        await store.update(pattern, lambda before: before | entries)

    allow, deny = Permission.ALLOW, Permission.DENY
    await add(allow, AclOperation.CLUSTER_ACTION, "kafka-cluster")  # for Kafka itself
    await add(allow, AclOperation.CREATE, "kafka-cluster")
    await add(allow, AclOperation.DESCRIBE, "kafka-cluster")
    broker = ZooKeeperKafka(
        tmp_path,
        hosts,
        KAFKAS_BROKER,
        {"authorizer.class.name": "kafka.security.authorizer.AclAuthorizer"},
    )
    await asyncio.to_thread(broker.start)
    try:
        kafka = await RawConnection.open(broker.address)
        await add(allow, AclOperation.DESCRIBE, "ord", prefixed=True)
        await until(0, lambda: created(kafka, "orders"))
        assert await produced(kafka, "orders") == 29
        await add(allow, AclOperation.WRITE, "orders")
        await until(0, lambda: produced(kafka, "orders"))
        await add(deny, AclOperation.WRITE, "ord", prefixed=True)
        await until(29, lambda: produced(kafka, "orders"))
        pattern, entries = acl(deny, AclOperation.WRITE, "ord", prefixed=True)
        await store.update(pattern, lambda before: before - entries)
        await until(0, lambda: produced(kafka, "orders"))

        code, found = await describe(kafka, version=3, resource_type_filter=TOPIC)
        assert (code, found) == (
            0,
            {
                Row("ord", TOPIC, PREFIXED, ANONYMOUS, "*", AclOperation.DESCRIBE, ALLOW),
                Row("orders", TOPIC, LITERAL, ANONYMOUS, "*", AclOperation.WRITE, ALLOW),
            },
        )
        listed = await kafka_acls(*in_zookeeper(hosts), "--list", "--topic", "orders")
        assert ANONYMOUS in listed
        assert "operation=WRITE" in listed
        await kafka.close()
    finally:
        await asyncio.to_thread(broker.kill)
