"""One Echoless for all applications, whose sessions may be short, and records for them."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.support.echoless import Echoless

SESSION_MS = 4_000
_PATIENCE_S = 60.0


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Echoless]:
    """A broker that lets members have short sessions; tests keep apart by the names of topics and groups."""
    settings = {"group_min_session_timeout_ms": "1000", "auto_create_topics_enable": "false"}
    echoless = Echoless(tmp_path_factory.mktemp("applications"), settings)
    echoless.start()
    yield echoless
    echoless.kill()


@pytest.fixture
def bootstrap(broker: Echoless) -> str:
    """The address of the broker."""
    return broker.kafka_address


@pytest.fixture
def create(bootstrap: str) -> Callable[..., None]:
    """Creates a topic: name, partitions."""

    def create_topic(name: str, partitions: int = 1) -> None:
        admin = AdminClient({"bootstrap.servers": bootstrap})
        admin.create_topics([NewTopic(name, partitions, 1)])[name].result(_PATIENCE_S)

    return create_topic


@pytest.fixture
def write(bootstrap: str) -> Callable[[str, list[str], int], None]:
    """Writes texts to a topic, in turn to each of its partitions."""

    def write_texts(topic: str, texts: list[str], partitions: int = 1) -> None:
        producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
        for number, text in enumerate(texts):
            producer.produce(topic, text, partition=number % partitions)
        assert producer.flush(_PATIENCE_S) == 0

    return write_texts


@pytest.fixture
def committed(bootstrap: str) -> Callable[[str, str, int], list[int]]:
    """The committed offsets of a group in every partition of a topic; -1001 where there is none."""

    def ask(group: str, topic: str, partitions: int = 1) -> list[int]:
        consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
        wanted = [TopicPartition(topic, partition) for partition in range(partitions)]
        found = consumer.committed(wanted, timeout=_PATIENCE_S)
        consumer.close()
        return [one.offset for one in found]

    return ask
