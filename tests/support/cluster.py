"""ZooKeeper and several real brokers, each in a separate process, as one object.

    with Cluster(tmp_path) as cluster:
        cluster.start()
        cluster.bootstrap; cluster.kill(2); cluster.start_broker(2)
        cluster.wait_for_leader("t", 0, other_than=2)

Addresses and data survive any end of a process. Nothing waits by the clock: `wait_until` polls the
brokers' admin ports. A `Network` gives every server its own host.
"""

from __future__ import annotations

import json
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, Protocol, Self

from confluent_kafka.admin import AdminClient, NewTopic

from echoless.testkit.free_ports import free_port
from tests.support.cluster_security import ClusterSecurity
from tests.support.echoless import LOOPBACK, SOURCES, Echoless
from tests.support.zookeeper import ZooKeeper

ZOOKEEPER = "zookeeper"
WAIT_S = 120.0
_ASK_AGAIN_S = 0.02
_ADMIN_TIMEOUT_S = 2.0


class Hosts(Protocol):
    """The hosts of the servers; `tests.nemesis.network.Network` is one."""

    def address(self, host: str) -> str: ...

    def prefix(self, host: str) -> tuple[str, ...]: ...


class PartitionRow(NamedTuple):
    """One broker's account of a partition that it holds."""

    topic: str
    partition: int
    leader: int
    leader_epoch: int
    replicas: frozenset[int]
    isr: frozenset[int]
    high_watermark: int
    log_end_offset: int
    size_bytes: int


class Cluster:
    """Brokers 1 to `brokers` with one ZooKeeper. `data_dirs` replaces the place of a broker's data.

    `advertised` are the addresses given to clients, such as those of proxies. With `by_name` the
    brokers know ZooKeeper and each other by the names of their hosts. `security` closes them to strangers.
    `tree` is the directory that their code is imported from. `settings_of` are settings of single brokers.
    """

    def __init__(
        self,
        directory: Path,
        settings: Mapping[str, str] | None = None,
        *,
        brokers: int = 3,
        hosts: Hosts | None = None,
        data_dirs: Mapping[int, Path] | None = None,
        advertised: Mapping[int, str] | None = None,
        by_name: bool = False,
        security: ClusterSecurity | None = None,
        tree: Path = SOURCES,
        settings_of: Mapping[int, Mapping[str, str]] | None = None,
    ) -> None:
        self.directory = directory
        self._advertised = dict(advertised or {})
        self._security = security
        self._settings = dict(settings or {})
        if security is not None:
            self._settings = {**security.settings, **self._settings}
        self._hosts = hosts
        self._by_name = by_name
        self._tree = tree
        self._settings_of = settings_of or {}
        self.zookeeper = ZooKeeper(directory / ZOOKEEPER, self._zookeeper_settings())
        if hosts is not None:
            self.zookeeper.process.prefix = hosts.prefix(ZOOKEEPER)
            host = ZOOKEEPER if by_name else hosts.address(ZOOKEEPER)
            self.zookeeper.address = f"{host}:{self.zookeeper.port}"
        self.brokers = {broker_id: self._broker(broker_id) for broker_id in range(1, brokers + 1)}
        for broker_id, data_dir in (data_dirs or {}).items():
            self.brokers[broker_id].data_dir = data_dir / "echoless-data"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self) -> None:
        """Returns when ZooKeeper and every broker have reported that they are ready."""
        self.zookeeper.start()
        if self._security is not None:
            self._security.add_users("--coordinator", self._coordinator)
        starting = [
            threading.Thread(target=self.start_broker, args=[broker_id])
            for broker_id in self.brokers
        ]
        for thread in starting:
            thread.start()
        for thread in starting:
            thread.join()
        assert all(broker.process.is_running for broker in self.brokers.values()), self.said()

    def close(self) -> None:
        """Sends SIGKILL to everything."""
        for broker in self.brokers.values():
            broker.kill()
        self.zookeeper.kill()

    @property
    def bootstrap(self) -> str:
        """Every broker's address, for clients; known once they have started."""
        return ",".join(broker.kafka_address for broker in self.brokers.values())

    @property
    def live(self) -> list[int]:
        """The brokers whose processes run (including paused ones)."""
        return [one for one, broker in self.brokers.items() if broker.process.is_running]

    def start_broker(self, broker_id: int) -> None:
        self.brokers[broker_id].start()

    def kill(self, broker_id: int) -> None:
        """Sends SIGKILL."""
        self.brokers[broker_id].kill()

    def stop(self, broker_id: int) -> int:
        """Sends SIGTERM; returns the exit status."""
        return self.brokers[broker_id].terminate()

    def pause(self, broker_id: int) -> None:
        """Sends SIGSTOP: connections stay open, but nothing answers."""
        self.brokers[broker_id].process.pause()

    def resume(self, broker_id: int) -> None:
        self.brokers[broker_id].process.resume()

    def create_topic(
        self,
        name: str,
        partitions: int,
        *,
        replicas: int = 3,
        leader: int | None = None,
        **configs: str | int,
    ) -> None:
        """Creates it; returns when every partition has a leader and all its replicas.

        With `leader`, that broker is the preferred leader of all partitions, and each broker has a replica.
        """
        followers = [one for one in self.brokers if one != leader]
        places: dict[str, Any] = {"replication_factor": replicas}
        if leader is not None:
            places = {"replica_assignment": [[leader, *followers]] * partitions}
        topic = NewTopic(
            name,
            num_partitions=partitions,
            config={key.replace("_", "."): str(value) for key, value in configs.items()},
            **places,
        )
        admin = self._admin()
        admin.create_topics([topic])[name].result(WAIT_S)
        self.wait_until(lambda: self._is_whole(name, partitions, replicas), f"{name} is whole")

    def delete_topic(self, name: str) -> None:
        """Deletes it through a real client; returns when no broker holds any of it."""
        admin = self._admin()
        admin.delete_topics([name])[name].result(WAIT_S)
        self.wait_until(
            lambda: all(row.topic != name for one in self.live for row in self.rows_if_any(one)),
            f"{name} is gone",
        )

    def rows(self, broker_id: int, *, within_s: float = WAIT_S) -> list[PartitionRow]:
        """The partitions that the broker holds, by its own account. Raises OSError if it is silent."""
        address = self.brokers[broker_id].admin_address
        topics = get_json(address, "/topics", timeout_s=within_s)["topics"]
        return [_row(topic["name"], one) for topic in topics for one in topic["partitions"]]

    def leader_rows(self) -> dict[tuple[str, int], PartitionRow]:
        """By (topic, partition): the account of the broker that claims to lead, newest epoch first."""
        found: dict[tuple[str, int], PartitionRow] = {}
        for broker_id in self.live:
            for row in self.rows_if_any(broker_id):
                place = (row.topic, row.partition)
                if row.leader == broker_id and (
                    place not in found or found[place].leader_epoch < row.leader_epoch
                ):
                    found[place] = row
        return found

    def rows_if_any(self, broker_id: int) -> list[PartitionRow]:
        """Like `rows`; empty for a broker that does not answer at once: it may be paused."""
        try:
            return self.rows(broker_id, within_s=_ADMIN_TIMEOUT_S)
        except (OSError, ValueError):
            return []

    def leader(self, topic: str, partition: int) -> int:
        """The broker that claims to lead the partition; -1 if none does, or is silent: see `wait_for_leader`."""
        row = self.leader_rows().get((topic, partition))
        return -1 if row is None else row.leader

    def wait_for_leader(self, topic: str, partition: int, *, other_than: int = -1) -> int:
        """The broker that claims to lead the partition, as soon as one does.

        On a busy machine a leader may be silent for a moment, as if there were none. `other_than` is the one that led before.
        """
        found: list[int] = []

        def is_led() -> bool:
            found.append(self.leader(topic, partition))
            return found[-1] not in {-1, other_than}

        self.wait_until(is_led, f"{topic}-{partition} has a leader other than {other_than}")
        return found[-1]

    def is_in_sync(self) -> bool:
        """Whether every partition that any broker holds has a leader and all replicas in its ISR."""
        leaders = self.leader_rows()
        held = {row[:2] for broker_id in self.live for row in self.rows_if_any(broker_id)}
        return held == leaders.keys() and all(row.isr == row.replicas for row in leaders.values())

    def is_healed(self) -> bool:
        """Like `is_in_sync`, with all replicas ending at one committed offset: no one writes."""
        rows = [self.rows_if_any(broker_id) for broker_id in self.brokers]
        accounts: dict[tuple[str, int], list[PartitionRow]] = {}
        for row in (row for several in rows for row in several):
            accounts.setdefault((row.topic, row.partition), []).append(row)
        return bool(accounts) and all(map(_agree, accounts.values())) and all(rows)

    def wait_until(
        self, is_so: Callable[[], bool], what: str = "", *, within_s: float = WAIT_S
    ) -> None:
        """Polls until it is so; if it never is, an AssertionError with the ends of all logs."""
        deadline = time.monotonic() + within_s
        while not is_so():
            assert time.monotonic() < deadline, f"not within {within_s} s: {what}\n{self.said()}"
            time.sleep(_ASK_AGAIN_S)

    def said(self) -> str:
        """The end of every server's log."""
        parts = [("zookeeper", self.zookeeper.process)]
        parts += [(f"broker {one}", broker.process) for one, broker in self.brokers.items()]
        return "\n".join(f"--- {name} ---\n{process.log_tail()}" for name, process in parts)

    @property
    def _coordinator(self) -> str:
        return f"zookeeper://{self.zookeeper.hosts('/echoless')}"

    def _admin(self) -> AdminClient:
        """A client to be kept until its answer is there: librdkafka ends with its last reference."""
        return AdminClient(self.client_settings())

    def client_settings(self) -> dict[str, Any]:
        """The settings of a librdkafka client that may do anything."""
        security = {} if self._security is None else self._security.admin
        return {"bootstrap.servers": self.bootstrap, "log_level": 2, **security}

    def _is_whole(self, topic: str, partitions: int, replicas: int) -> bool:
        rows = self.leader_rows()
        return all(
            (row := rows.get((topic, partition))) is not None and len(row.isr) == replicas
            for partition in range(partitions)
        )

    def _zookeeper_settings(self) -> dict[str, str]:
        if self._hosts is None:
            return {}
        return {"clientPortAddress": self._hosts.address(ZOOKEEPER)}

    def _broker(self, broker_id: int) -> Echoless:
        name = f"broker-{broker_id}"
        host = LOOPBACK if self._hosts is None else self._hosts.address(name)
        arguments = ["--broker-id", str(broker_id)]
        arguments += ["--coordinator", self._coordinator]
        if broker_id in self._advertised:
            arguments += ["--advertise", self._advertised[broker_id]]
        # Below the ephemeral ports: an outgoing connection must not take one between two starts.
        ports = [free_port() for _ in range(3)]
        settings = {"default_replication_factor": "3", **self._settings}
        settings |= self._settings_of.get(broker_id, {})
        if self._hosts is not None:
            settings["admin_insecure"] = (
                "true"  # addresses of namespaces that only this test reaches
            )
        if self._by_name:
            settings["native_advertise"] = f"{name}:{ports[1]}"
        broker = Echoless(
            self.directory / name, settings, arguments=arguments, host=host, tree=self._tree
        )
        broker.kafka_address, broker.native_address, broker.admin_address = (
            f"{host}:{port}" for port in ports
        )
        if self._hosts is not None:
            broker.process.prefix = self._hosts.prefix(name)
        return broker


@contextmanager
def running_cluster(directory: Path, **settings: str) -> Iterator[Cluster]:
    """Three brokers that have started; everything is killed at the end."""
    with Cluster(directory, settings) as cluster:
        cluster.start()
        yield cluster


def get_json(address: str, path: str, *, timeout_s: float = WAIT_S) -> Any:
    """The answer of an admin port. Raises OSError without one."""
    with urllib.request.urlopen(f"http://{address}{path}", timeout=timeout_s) as answer:
        return json.load(answer)


def _row(topic: str, one: Mapping[str, Any]) -> PartitionRow:
    return PartitionRow(
        topic,
        one["partition"],
        one["leader"],
        one["leader_epoch"],
        frozenset(one["replicas"]),
        frozenset(one["isr"]),
        one["high_watermark"],
        one["log_end_offset"],
        one["size_bytes"],
    )


def _agree(accounts: list[PartitionRow]) -> bool:
    """Whether as many replicas answer as are in sync, with one leader, one epoch and one end."""
    first = accounts[0]
    return len(accounts) == len(first.isr) == len(first.replicas) and all(
        (row.leader, row.leader_epoch, row.isr) == (first.leader, first.leader_epoch, first.isr)
        and row.high_watermark == row.log_end_offset == first.log_end_offset
        and row.leader > 0
        for row in accounts
    )
