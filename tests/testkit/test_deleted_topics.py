"""Topics that are deleted while a producer still has them: its Metadata requests create them again, here as in Kafka.

`auto_create_topics_enable` is the remedy, and can be changed while a broker runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from echoless.testkit.broker_process import BrokerProcess
from echoless.testkit.clients.driver import Driver
from echoless.testkit.clients.programs import FURTHER
from tests.support.apache_kafka import ApacheKafka
from tests.testkit.tools import tool_of
from tests.toolchain import require

pytestmark = [pytest.mark.clients, pytest.mark.slow]

REFRESHING = {"topic.metadata.refresh.interval.ms": 50}
IMPATIENT = {**REFRESHING, "topic.metadata.propagation.max.ms": 100}
"""It gives a record up when the topic was missing for so long."""
WITHIN_S = 120
GONE = {
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError._UNKNOWN_PARTITION,
    KafkaError._UNKNOWN_TOPIC,
}
"""A record's error in a topic that is gone; it depends on what the producer has learned first."""


@pytest.fixture(scope="module")
def echoless() -> Iterator[str]:
    with BrokerProcess() as process:
        yield process.bootstrap_servers


@pytest.fixture(scope="module")
def apache_kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    require("java", "kafka")
    directory: Path = tmp_path_factory.mktemp("kafka")
    kafka = ApacheKafka(directory, {"auto.create.topics.enable": "true"})
    kafka.start()
    yield kafka.address
    kafka.kill()


@pytest.fixture(params=["echoless", pytest.param("apache_kafka", marks=pytest.mark.kafka)])
def bootstrap(request: pytest.FixtureRequest) -> str:
    return str(request.getfixturevalue(request.param))


def created(bootstrap: str, topic: str) -> AdminClient:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(WITHIN_S)
    return admin


def delete(admin: AdminClient, topic: str) -> None:
    admin.delete_topics([topic])[topic].result(WITHIN_S)


def is_there(admin: AdminClient, topic: str) -> bool:
    return topic in admin.list_topics(timeout=WITHIN_S).topics


def deliver(producer: Producer, topic: str) -> KafkaError | None:
    """Sends a record and returns its error once that, or its success, is known."""
    outcomes: list[KafkaError | None] = []
    try:
        producer.produce(topic, b"x", on_delivery=lambda error, _: outcomes.append(error))
    except KafkaException as error:  # it knows already
        return KafkaError(error.args[0].code())
    assert producer.flush(WITHIN_S) == 0
    return outcomes[0]


def test_a_refresh_of_metadata_brings_a_deleted_topic_back(bootstrap: str) -> None:
    """librdkafka asks for the topics that it has, and producers ask to have them created; it sends nothing meanwhile."""
    admin = created(bootstrap, "refreshed")
    producer = Producer({"bootstrap.servers": bootstrap, **REFRESHING})
    assert deliver(producer, "refreshed") is None
    delete(admin, "refreshed")
    while not is_there(admin, "refreshed"):
        pass  # it was deleted when that was answered, or is about to be
    assert deliver(producer, "refreshed") is None


def test_a_producer_that_sends_to_a_deleted_topic_brings_it_back(bootstrap: str) -> None:
    """sarama refreshes its metadata after an error; it delivers everything in both brokers."""
    program = FURTHER["sarama"]
    require(*tool_of(program))
    admin = created(bootstrap, "sent-to")
    driver = Driver(program)
    driver.open(bootstrap)

    def send(numbers: range) -> None:
        for number in numbers:
            driver.send("sent-to", 0, [number])
            driver.wait()

    send(range(3))
    delete(admin, "sent-to")
    send(range(3, 6))
    driver.end()
    assert (len(driver.deliveries.acknowledged), driver.deliveries.failed) == (6, [])
    assert is_there(admin, "sent-to")


def test_without_auto_creation_a_deleted_topic_stays_deleted(echoless: str) -> None:
    """Switched off while the broker and the producer run; on again, the topic comes back."""
    admin = created(echoless, "stays")
    producer = Producer({"bootstrap.servers": echoless, **IMPATIENT})
    assert deliver(producer, "stays") is None
    switch(admin, "false")
    delete(admin, "stays")
    error = deliver(producer, "stays")  # known only when refreshed metadata is without the topic
    assert error is not None
    assert error.code() in GONE
    assert not is_there(admin, "stays")
    switch(admin, "true")
    while not is_there(admin, "stays"):
        pass
    assert retried(lambda: deliver(producer, "stays")) is None


def switch(admin: AdminClient, value: str) -> None:
    entry = ConfigEntry(
        "auto.create.topics.enable", value, incremental_operation=AlterConfigOpType.SET
    )
    broker = ConfigResource(ResourceType.BROKER, "1", incremental_configs=[entry])
    for future in admin.incremental_alter_configs([broker]).values():
        future.result(WITHIN_S)


def retried(send: Callable[[], KafkaError | None]) -> KafkaError | None:
    """Sends until the producer has learned of the new topic, by a refresh that is under way."""
    error = send()
    while error is not None and error.code() in GONE:
        error = send()
    return error
