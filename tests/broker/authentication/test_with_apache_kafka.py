"""Users shared with a running Apache Kafka 3.9 in ZooKeeper mode: each admits whom the other has added.

Added, given another password and removed, at both, by `echoless users` and by `kafka-configs.sh`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from echoless.broker.authentication.credentials import REFRESH_INTERVAL_S
from echoless.protocol.sasl.mechanism import Mechanism
from echoless.testkit.free_ports import free_port
from tests.broker.authentication.log_in import log_in, with_users
from tests.broker.handlers.test_alter_user_scram_credentials import altered, deletion, upsertion
from tests.cli.command import Command
from tests.compatibility.kafka_tools import run_tool
from tests.support.echoless import LOOPBACK
from tests.support.raw_client import ConnectionEndedError, RawConnection
from tests.support.zookeeper import ZooKeeper
from tests.support.zookeeper_kafka import ZooKeeperKafka
from tests.toolchain import require

pytestmark = [pytest.mark.cluster, pytest.mark.kafka, pytest.mark.slow]

KAFKAS_BROKER: Final = 7
MECHANISMS: Final = (Mechanism.SCRAM_SHA_256, Mechanism.SCRAM_SHA_512)
BY_ANNOUNCEMENT_S: Final = REFRESH_INTERVAL_S / 2
"""Too short for the regular reading that finds what was not announced."""
_SCRAM: Final = "org.apache.kafka.common.security.scram.ScramLoginModule required;"


@dataclass(slots=True)
class Both:
    """The two brokers on one ZooKeeper."""

    hosts: str
    echoless: str
    """The address where clients log in."""
    kafka: str
    """Kafka's, likewise."""
    kafka_open: str
    """Kafka's address without a log-in."""


@pytest.fixture(scope="module")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeper]:
    require("kafka")
    server = ZooKeeper(tmp_path_factory.mktemp("zookeeper"))
    server.start()
    yield server
    server.kill()


@pytest.fixture
async def both(tmp_path: Path, zookeeper: ZooKeeper) -> AsyncIterator[Both]:
    hosts = zookeeper.fresh_hosts()
    closed = f"{LOOPBACK}:{free_port()}"
    named = f"{LOOPBACK}:{free_port()}"
    listener = "listener.name.sasl_plaintext"
    settings = {
        "listeners": f"PLAINTEXT://{named},SASL_PLAINTEXT://{closed}",
        "sasl.enabled.mechanisms": ",".join(MECHANISMS),
        **{f"{listener}.{one.lower()}.sasl.jaas.config": _SCRAM for one in MECHANISMS},
    }
    kafka = ZooKeeperKafka(tmp_path / "kafka", hosts, KAFKAS_BROKER, settings)
    # Kafka first: its tool asks the controller, which Echoless would be otherwise.
    await asyncio.to_thread(kafka.start)
    try:
        async with with_users(
            tmp_path / "echoless",
            coordinator=f"zookeeper://{hosts}",
            listener_security_protocol_map="PLAINTEXT:SASL_PLAINTEXT",
        ) as running:
            yield Both(hosts, running.kafka_address, closed, named)
    finally:
        await asyncio.to_thread(kafka.kill)


async def admits(address: str, user: str, password: str, mechanism: Mechanism) -> bool:
    """Whether the broker lets the user in."""
    connection = await RawConnection.open(address)
    try:
        return bool((await log_in(connection, user, password, mechanism)).error_code == 0)
    except (ConnectionEndedError, AssertionError):
        return False  # Kafka refuses an unknown user at the first step
    finally:
        await connection.close()


async def until(expected: object, ask: Callable[[], Awaitable[object]]) -> None:
    """Asks until the answer is this; fails once it can no longer come from an announcement."""
    async with asyncio.timeout(BY_ANNOUNCEMENT_S):
        last = await ask()
        while last != expected:
            await asyncio.sleep(0.05)
            last = await ask()


async def in_force(address: str, user: str, *, good: str | None, bad: str | None) -> None:
    """Waits until the one password opens, by every mechanism, and then tries the other one."""
    for mechanism in MECHANISMS:
        if good is not None:
            await until(True, lambda one=mechanism: admits(address, user, good, one))
        if bad is not None:
            await until(False, lambda one=mechanism: admits(address, user, bad, one))


async def test_kafka_admits_whom_echoless_has_added(
    both: Both, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """By `echoless users`: a new user, another password, and one who is removed."""
    secret = tmp_path / "secret"
    place = ("--coordinator", f"zookeeper://{both.hosts}")
    addresses = (both.kafka, both.echoless)

    async def echoless(*arguments: object) -> None:
        ran = await asyncio.to_thread(Command(capsys), "users", *arguments, *place)
        assert ran.code == 0, ran.err

    secret.write_text("first")
    await echoless("add", "alice", "--password-file", secret)
    for address in addresses:
        await in_force(address, "alice", good="first", bad="second")
    secret.write_text("second")
    await echoless("add", "alice", "--password-file", secret)
    for address in addresses:
        await in_force(address, "alice", good="second", bad="first")
    await echoless("remove", "alice")
    for address in addresses:
        await in_force(address, "alice", good=None, bad="second")


@pytest.mark.parametrize("way", ["bootstrap-server", "zookeeper"])
async def test_echoless_admits_whom_kafkas_tool_has_added(both: Both, way: str) -> None:
    """By `kafka-configs.sh`, over the broker and in ZooKeeper itself."""
    place = both.kafka_open if way == "bootstrap-server" else both.hosts
    addresses = (both.echoless, both.kafka)

    async def configs(*arguments: str) -> None:
        await asyncio.to_thread(
            run_tool,
            "kafka.admin.ConfigCommand",
            *(f"--{way}", place, "--alter", "--entity-type", "users", "--entity-name", "bob"),
            *arguments,
        )

    def added(password: str) -> str:
        return ",".join(f"{one}=[iterations=4096,password={password}]" for one in MECHANISMS)

    await configs("--add-config", added("first"))
    for address in addresses:
        await in_force(address, "bob", good="first", bad="second")
    await configs("--add-config", added("second"))
    for address in addresses:
        await in_force(address, "bob", good="second", bad="first")
    await configs("--delete-config", ",".join(MECHANISMS))
    for address in addresses:
        await in_force(address, "bob", good=None, bad="second")


async def test_both_answer_several_changes_of_one_user_alike(both: Both) -> None:
    """Two mechanisms at once are a success; the same credential twice is 92. (Kafka in KRaft mode answers 92 to both.)"""
    answers = []
    for address in (both.kafka_open, both.echoless):
        connection = await RawConnection.open(address)
        if address == both.echoless:
            assert (await log_in(connection, "carol", "pencil", MECHANISMS[0])).error_code == 0
        answers.append(
            [
                await altered(connection, upsertion("carol"), upsertion("carol", mechanism=2)),
                await altered(connection, upsertion("dave"), upsertion("dave")),
                await altered(connection, upsertion("erin"), deletion("erin")),
                await altered(connection, deletion("frank"), upsertion("frank", mechanism=2)),
            ]
        )
        await connection.close()
        if address == both.kafka_open:
            await in_force(both.echoless, "carol", good="pencil", bad="pen")
    assert answers == [[{"carol": 0}, {"dave": 92}, {"erin": 92}, {"frank": 91}]] * 2
