"""Kafka Streams 4.2: works with `group.protocol=classic`, and says what is wrong with `streams` (KIP-1071)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.applications.application import Application
from tests.applications.tools import STREAMS_4_JARS
from tests.support.apache_kafka import ApacheKafka
from tests.toolchain import require

pytestmark = [pytest.mark.clients, pytest.mark.slow]

_REFUSAL = "UnsupportedVersionException: The cluster does not support the STREAMS group protocol"
_WITHIN_S = 60.0


def upper_case(directory: Path, bootstrap: str, protocol: str, *topics: str) -> Application:
    main = "echoless.UpperCase"
    state = str(directory / "state")
    return Application(
        directory / "run", main, bootstrap, state, protocol, *topics, jars=STREAMS_4_JARS
    )


@pytest.fixture(scope="module")
def apache_kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    require("java", "kafka")
    kafka = ApacheKafka(tmp_path_factory.mktemp("kafka"), {})
    kafka.start()
    yield kafka.address
    kafka.kill()


@pytest.mark.parametrize(
    "server", ["bootstrap", pytest.param("apache_kafka", marks=pytest.mark.kafka)]
)
def test_the_streams_protocol_is_refused_in_words_that_its_user_reads(
    tmp_path: Path, request: pytest.FixtureRequest, server: str
) -> None:
    """The application ends, with the same exception as on Apache Kafka 3.9: ApiVersions has no such heartbeat."""
    bootstrap: str = request.getfixturevalue(server)
    admin = AdminClient({"bootstrap.servers": bootstrap})
    topics = [NewTopic(name, 1, 1) for name in ("plain", "capitals")]
    for future in admin.create_topics(topics).values():
        future.result(_WITHIN_S)
    application = upper_case(tmp_path, bootstrap, "streams", "plain", "capitals")
    application.start()
    application.wait()
    assert any(_REFUSAL in line for line in application.lines), application.said()


def test_the_classic_protocol_works(
    tmp_path: Path, bootstrap: str, create: Callable[..., None], write: Callable[..., None]
) -> None:
    """The remedy for that refusal, and the default."""
    create("small")
    create("large")
    write("small", ["a", "b"])
    application = upper_case(tmp_path, bootstrap, "classic", "small", "large")
    application.start()
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "reads-large"})
    consumer.assign([TopicPartition("large", 0, 0)])
    found: list[bytes | None] = []

    def is_copied() -> bool:
        found.extend(one.value() for one in consumer.consume(10, 0.2) if one.error() is None)
        return len(found) == 2

    application.wait_until(is_copied, "both records are copied")
    application.kill()
    consumer.close()
    assert found == [b"A", b"B"]
