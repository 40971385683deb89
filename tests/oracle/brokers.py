"""The two brokers of a run, in a directory in memory where there is one: restarts cost files.

Apache Kafka runs through the whole run. Echoless is replaced by an empty one when a group of games
needs other settings.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import tempfile
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any, Final, Protocol, Self

from tests.oracle.script import Restart, Script, Topic
from tests.oracle.side import Connect, Side, Sides
from tests.support.apache_kafka import ApacheKafka
from tests.support.cluster_security import ClusterSecurity
from tests.support.echoless import Echoless
from tests.support.raw_client import RawConnection, create_topic, topic_id, wait_for_leaders

_MEMORY: Final = Path("/dev/shm")


class Broker(Protocol):
    """The interface of either broker."""

    data_dir: Path

    @property
    def kafka_address(self) -> str: ...
    def start(self) -> None: ...
    def kill(self) -> None: ...
    def terminate(self) -> object: ...


class Brokers:
    """Starts, restarts and connects to both. Use it in a `with` block."""

    def __init__(
        self,
        script: Script[Any],
        *,
        kafka_only: bool = False,
        module: str | None = None,
        is_secured: bool = False,
    ) -> None:
        """Plays no part before the `with` block.

        `kafka_only`: the other broker is a second Apache Kafka. `module` is what Echoless is started
        from instead of its own. `is_secured`: Echoless is asked over TLS, with log-ins and ACLs.
        """
        self.is_echoless = not kafka_only
        self._script = script
        self._module = module
        self._is_secured = is_secured
        self._security: ClusterSecurity | None = None
        self._attempts = itertools.count()
        self._stack = contextlib.ExitStack()
        self._settings: Mapping[str, str] | None = None
        self._running: list[Broker] = []
        """Kafka, and the other one once it is known with which settings."""
        self._topics: list[set[str]] = [set(), set()]
        """The topics that each of them has."""

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as stack:
            self._directory = Path(
                stack.enter_context(
                    tempfile.TemporaryDirectory(
                        prefix=f"oracle-{self._script.name}-",
                        dir=_MEMORY if _MEMORY.is_dir() else None,
                        ignore_cleanup_errors=True,
                    )
                )
            )
            stack.callback(self._kill)
            if self._is_secured:
                self._security = ClusterSecurity(self._directory / "security", session_ms=0)
            self._start(self._kafka("kafka"))
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _kill(self) -> None:
        for broker in self._running:
            broker.kill()

    def _start(self, broker: Broker) -> None:
        self._running.append(broker)
        broker.start()

    def use(self, settings: Mapping[str, str]) -> None:
        """Has Echoless run with these settings: a new one, unless they are those that it has."""
        if settings == self._settings:
            return
        for broker in self._running[1:]:
            broker.kill()
        del self._running[1:]
        self._settings, self._topics[1] = settings, set()
        name = f"other-{next(self._attempts)}"
        self._start(self._echoless(name, settings) if self.is_echoless else self._kafka(name))

    def _kafka(self, name: str) -> Broker:
        script = self._script
        return ApacheKafka(
            self._directory / name, script.kafka_settings, version=script.kafka_version
        )

    def _echoless(self, name: str, settings: Mapping[str, str]) -> Broker:
        place = self._directory / name
        if self._security is None:
            return Echoless(place, settings, module=self._module)
        self._security.add_users("--data-dir", str(place / "echoless-data"))
        return Echoless(place, {**self._security.settings, **settings}, module=self._module)

    async def restart(self, how: Restart) -> None:
        """Stops and starts both, at the same time."""
        await asyncio.gather(*(asyncio.to_thread(_restart, one, how) for one in self._running))

    @contextlib.asynccontextmanager
    async def sides(self, topics: Mapping[str, Topic]) -> AsyncIterator[Sides]:
        """Both brokers, once each has these topics and answers for all partitions of them."""
        kafka, other = self._running
        sides = Sides(
            Side(_connect(kafka, None), is_kafka=True),
            Side(_connect(other, self._security), is_kafka=not self.is_echoless),
        )
        try:
            for side, there in zip(sides, self._topics, strict=True):
                await _make_ready(side, topics, there)
            yield sides
        finally:
            for side in sides:
                await side.close()


def _connect(broker: Broker, security: ClusterSecurity | None) -> Connect:
    open_one = RawConnection.open if security is None else security.connect
    return lambda: open_one(broker.kafka_address)


def _restart(broker: Broker, how: Restart) -> None:
    if how is Restart.KILL:
        broker.kill()
    else:
        broker.terminate()
    if how is Restart.LOST_SNAPSHOTS:
        for path in broker.data_dir.rglob("*.snapshot"):
            path.unlink()
    broker.start()


async def _make_ready(side: Side, topics: Mapping[str, Topic], there: set[str]) -> None:
    connection = await side.borrow()
    await connection.call("api_versions", 0)
    for name, topic in topics.items():
        if name in there:
            await wait_for_leaders(connection, name, topic.partitions)
        else:
            await create_topic(connection, name, topic.partitions, topic.configs)
            there.add(name)
        side.topic_ids[name] = await topic_id(connection, name)
    side.give_back(connection)
