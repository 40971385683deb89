"""`python -m benchmarks.security`: what TLS, log-ins and ACLs cost a batch and a new connection, and TLS with Kafka.

One broker per door, all at once, asked in turn. Batches come from an idempotent librdkafka producer, acks=all. New
connections come from one raw client, one after the other: each ends after its first answer. What the broker's
processor time says holds on a busy machine, too; rates are those of client and broker on the same processors.
"""

from __future__ import annotations

import argparse
import asyncio
import ssl
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from pathlib import Path
from typing import Final

from benchmarks.pairs import Pair, pairs_of, run_load, several_in_turn
from benchmarks.request_cost import processor_s
from benchmarks.versus_kafka import KAFKA_JVM
from echoless.protocol.sasl.mechanism import Mechanism
from echoless.testkit.free_ports import free_port
from tests.broker.authentication.log_in import log_in as log_in_raw
from tests.support.apache_kafka import ApacheKafka
from tests.support.certificates import Authority
from tests.support.client_security import log_in, tls_settings, write_settings
from tests.support.echoless import LOOPBACK, REPOSITORY, Echoless
from tests.support.raw_client import RawConnection

SIZES: Final = {"1 KB": 1_000, "16 KB": 16_000}
PASSWORD: Final = "hunter2"
ITERATIONS: Final = 8192
_SCRAM: Final = "SCRAM-SHA-256"
_TOPICS: Final = map("secure-{}".format, count())


@dataclass(slots=True)
class Door:
    """One broker, and how clients come in."""

    name: str
    broker: Echoless | ApacheKafka
    address: Callable[[], str]
    client: Mapping[str, str]
    """The client's settings, by librdkafka's names."""
    context: ssl.SSLContext | None = None
    file: Path = field(default_factory=Path)

    async def connect(self) -> None:
        """One new connection, up to its first answer."""
        connection = await RawConnection.open(self.address(), self.context)
        if "sasl.mechanism" in self.client:
            answer = await log_in_raw(connection, "alice", PASSWORD, Mechanism(_SCRAM))
            assert answer.error_code == 0
        else:
            await connection.call("api_versions", 0)
        await connection.close()


@contextmanager
def doors(*, with_kafka: bool) -> Iterator[list[Door]]:
    """Every door with a running broker, the plain one first."""
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="security-")))
        found = _echoless(directory)
        if with_kafka:
            found += _kafka(directory)
        started: list[object] = []
        for number, door in enumerate(found):
            door.file = write_settings(directory / f"client-{number}", door.client)
            if door.broker not in started:
                started.append(door.broker)
                stack.callback(door.broker.kill)
                door.broker.start()
        yield found


def _echoless(directory: Path) -> list[Door]:
    authority = Authority(directory / "certificates")
    login = log_in(_SCRAM, "alice", PASSWORD)
    in_the_open = log_in(_SCRAM, "alice", PASSWORD, tls=False)
    acls = {"authorizer": "acl"}
    tls = authority.client_context()

    def door(
        name: str,
        settings: Mapping[str, str],
        client: Mapping[str, str],
        context: ssl.SSLContext | None = None,
    ) -> Door:
        place = directory / name.replace(" ", "-")
        _add_alice(place)
        broker = Echoless(place, settings)
        return Door(name, broker, lambda: broker.kafka_address, client, context)

    over_tls = tls_settings(authority)
    return [
        door("plain", {}, {}),
        door("TLS", authority.settings("PLAINTEXT:SSL"), over_tls, tls),
        door("SCRAM", {"listener_security_protocol_map": "PLAINTEXT:SASL_PLAINTEXT"}, in_the_open),
        door("ACLs", acls, {}),
        door(
            "SASL_SSL and ACLs",
            authority.settings("PLAINTEXT:SASL_SSL", **acls),
            over_tls | login,
            tls,
        ),
    ]


def _add_alice(place: Path) -> None:
    """A user, and the rights of it and of clients that do not log in."""
    place.mkdir(parents=True)
    secret = place / "secret"
    secret.write_text(PASSWORD)
    data_dir = ("--data-dir", str(place / "echoless-data"))
    iterations = ("--iterations", str(ITERATIONS))
    _command("users", "add", "alice", "--password-file", str(secret), *iterations, *data_dir)
    for principal in ("User:alice", "User:ANONYMOUS"):
        operations = [part for one in ("create", "write") for part in ("--operation", one)]
        _command("acls", "add", "--principal", principal, "--topic", "*", *operations, *data_dir)


def _command(*arguments: str) -> None:
    command = [sys.executable, "-m", "echoless", *arguments]
    subprocess.run(command, check=True, capture_output=True, cwd=REPOSITORY)


def _kafka(directory: Path) -> list[Door]:
    authority = Authority(directory / "kafkas-certificates")
    secure = f"{LOOPBACK}:{free_port()}"
    settings = {
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SSL:SSL",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(authority.issue("broker")),
    }
    kafka = ApacheKafka(
        directory / "kafka", settings, jvm=KAFKA_JVM, more_listeners=[f"SSL://{secure}"]
    )
    tls = authority.client_context()
    return [
        Door("Kafka, plain", kafka, lambda: kafka.address, {}),
        Door("Kafka, TLS", kafka, lambda: secure, tls_settings(authority), tls),
    ]


def produce(door: Door, batch_bytes: int, seconds: float) -> Mapping[str, float]:
    """Batches/s, and the broker's processor time for each."""
    topic = next(_TOPICS)
    before = processor_s(door.broker.process.pid)
    load = run_load(
        "throughput",
        door.address(),
        topic,
        batch_bytes=batch_bytes,
        seconds=seconds,
        warm_up=1,
        security=door.file,
    )
    assert not load["failed"]
    took_s = processor_s(door.broker.process.pid) - before
    return {"per_s": load["batches_per_s"], "us": 1e6 * took_s / load["batches"]}


def connect(door: Door, connections: int) -> Mapping[str, float]:
    """New connections/s, and the broker's processor time for each."""

    async def one_by_one() -> None:
        for _ in range(connections):
            await door.connect()

    before = processor_s(door.broker.process.pid)
    begun = time.perf_counter()
    asyncio.run(one_by_one())
    took_s = time.perf_counter() - begun
    used_s = processor_s(door.broker.process.pid) - before
    return {"per_s": connections / took_s, "us": 1e6 * used_s / connections}


def table(what: str, found: Sequence[Door], measured: Sequence[list[Mapping[str, float]]]) -> str:
    """One row per door: medians and ranges, and its ratio to the plain door of the same broker."""
    lines = [
        f"| {what} | per second | broker, us | processor time against plain |",
        "|---|---|---|---|",
    ]
    for door, rounds in zip(found, measured, strict=True):
        plain = "Kafka, plain" if door.name.startswith("Kafka") else "plain"
        base = measured[[one.name for one in found].index(plain)]
        pair: Pair = pairs_of(rounds, base)["us"]
        low, high = pair.spread
        cells = [_median(rounds, "per_s"), _median(rounds, "us")]
        lines.append(
            f"| {door.name} | {' | '.join(cells)} | {pair.ratio:.2f} [{low:.2f} .. {high:.2f}] |"
        )
    return "\n".join(lines)


def _median(rounds: Sequence[Mapping[str, float]], figure: str) -> str:
    values = [one[figure] for one in rounds]
    return f"{statistics.median(values):.0f} [{min(values):.0f} .. {max(values):.0f}]"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.security", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=3)
    parser.add_argument("--connections", type=int, default=200)
    parser.add_argument("--no-kafka", action="store_true")
    arguments = parser.parse_args()
    with doors(with_kafka=not arguments.no_kafka) as found:
        for name, size in SIZES.items():
            measures = [partial(produce, door, size, arguments.seconds) for door in found]
            measured = several_in_turn(arguments.rounds, measures)
            print(table(f"{name} batches", found, measured), flush=True)
        measures = [partial(connect, door, arguments.connections) for door in found]
        measured = several_in_turn(arguments.rounds, measures)
        print(table("new connections", found, measured), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
