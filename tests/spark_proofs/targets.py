"""The target of a sink: one Echoless, one Apache Kafka, or a cluster of three Echoless brokers, open or secured.

Clients reach each broker only through its own proxy, whose address the broker advertises, so that
acknowledgements can be lost; requests always arrive.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Final, Protocol, Self

from confluent_kafka.admin import AdminClient, NewTopic

from tests.support.apache_kafka import ApacheKafka, KafkaVersion
from tests.support.cluster import Cluster
from tests.support.cluster_security import ClusterSecurity
from tests.support.echoless import Echoless
from tests.support.lossy_proxy import LossyProxy

TOPIC: Final = "proof"
_CREATE_TIMEOUT_S: Final = 60.0


class Broker(Protocol):
    """One process that can be killed and restarted at the same address."""

    @property
    def kafka_address(self) -> str: ...

    def start(self) -> None: ...

    def kill(self) -> None: ...


class Target:
    """Brokers behind their proxies. `close` leaves nothing running."""

    def __init__(self, seed: int, brokers: int) -> None:
        self._stack = ExitStack()
        self.proxies = [
            self._stack.enter_context(LossyProxy(seed + number)) for number in range(brokers)
        ]
        self.brokers: list[Broker] = []
        self.security: Mapping[str, str] = {}
        """How clients log in, by librdkafka's names."""
        self.lose_answers(False)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @property
    def bootstrap(self) -> str:
        return ",".join(proxy.address for proxy in self.proxies)

    @property
    def client(self) -> dict[str, str]:
        """The addresses and the log-in, by librdkafka's names."""
        return {"bootstrap.servers": self.bootstrap, **self.security}

    def lose_answers(self, do_it: bool) -> None:
        """Turns the loss of answers on or off."""
        for proxy in self.proxies:
            proxy.is_lossy = do_it

    @property
    def answers_lost(self) -> int:
        """Pieces of answers that were swallowed whole or cut."""
        return sum(proxy.swallowed + proxy.cut for proxy in self.proxies)

    def create_topic(self, partitions: int) -> None:
        """Creates it with as many replicas as there are brokers."""
        admin = AdminClient({**self.client, "log_level": 2})
        topic = NewTopic(
            TOPIC, num_partitions=partitions, replication_factor=min(3, len(self.brokers))
        )
        admin.create_topics([topic])[TOPIC].result(_CREATE_TIMEOUT_S)

    def run(self, brokers: list[Broker], end: Callable[[], object]) -> None:
        """Takes over running brokers; `end` ends them with the target."""
        self.brokers = brokers
        self._stack.callback(end)
        for proxy, broker in zip(self.proxies, brokers, strict=True):
            proxy.target = broker.kafka_address


def start_echoless(directory: Path, seed: int) -> Target:
    """One broker, with a user's defaults."""
    target = Target(seed, 1)
    broker = Echoless(directory, arguments=["--advertise", target.proxies[0].address])
    broker.start()
    target.run([broker], broker.kill)
    return target


def start_apache_kafka(
    directory: Path, seed: int, version: KafkaVersion = KafkaVersion.V3_9
) -> Target:
    """Apache Kafka, one node."""
    target = Target(seed, 1)
    advertised = f"PLAINTEXT://{target.proxies[0].address}"
    kafka = ApacheKafka(directory, {"advertised.listeners": advertised}, version=version)
    kafka.start()
    target.run([kafka], kafka.kill)
    return target


def start_cluster(directory: Path, seed: int, security: ClusterSecurity | None = None) -> Target:
    """Three Echoless brokers and a ZooKeeper; two of three replicas must have a record."""
    target = Target(seed, 3)
    settings = {"min_insync_replicas": "2", "zookeeper_session_timeout_ms": "3000"}
    addresses = {number: proxy.address for number, proxy in enumerate(target.proxies, 1)}
    cluster = Cluster(directory, settings, advertised=addresses, security=security)
    cluster.start()
    if security is not None:
        target.security = security.client
    target.run(list(cluster.brokers.values()), cluster.close)
    return target


def start_secured_cluster(directory: Path, seed: int) -> Target:
    """The same, closed to strangers: TLS, log-ins with SCRAM, ACLs, sessions of 3 s."""
    return start_cluster(directory, seed, ClusterSecurity(directory / "security"))


TARGETS: Final[Mapping[str, Callable[[Path, int], Target]]] = {
    "echoless": start_echoless,
    "apache-kafka": start_apache_kafka,
    "apache-kafka-4": partial(start_apache_kafka, version=KafkaVersion.V4),
    "cluster": start_cluster,
    "secured-cluster": start_secured_cluster,
}
