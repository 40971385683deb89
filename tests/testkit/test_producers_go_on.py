"""Real producers go on where nothing of theirs is missing: in a topic that comes again, and after a long pause.

Each stores ten records, is forgotten, and stores ten more; none of them notices.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from echoless.testkit.admin import Admin
from echoless.testkit.broker_process import BrokerProcess
from echoless.testkit.clients.driver import Driver
from echoless.testkit.clients.programs import FURTHER, PROGRAMS, Program
from echoless.testkit.native import Native
from tests.support.apache_kafka import ApacheKafka, KafkaVersion
from tests.testkit.tools import tool_of
from tests.toolchain import require

ALL = PROGRAMS | FURTHER
BEFORE, AFTER = range(10), range(10, 20)
BY_TOPIC_ID = "franz-go"
"""It sends to the topic's id where a broker takes it (Produce 13), and gives records of another id up by design."""
pytestmark = [pytest.mark.clients, pytest.mark.slow]


@pytest.fixture(scope="module")
def broker() -> Iterator[BrokerProcess]:
    with BrokerProcess({"auto_create_topics_enable": "false"}) as process:
        yield process


@pytest.fixture(scope="module")
def forgetful() -> Iterator[BrokerProcess]:
    """A broker that forgets producers which are idle for a moment."""
    settings = {"auto_create_topics_enable": "false", "producer_id_expiration_ms": "300"}
    with BrokerProcess(settings) as process:
        yield process


@pytest.fixture(params=ALL)
def program(request: pytest.FixtureRequest) -> Program:
    program = ALL[request.param]
    require(*tool_of(program))
    return program


def send_all(driver: Driver, topic: str, numbers: range) -> None:
    """Sends one record after the other."""
    for number in numbers:
        driver.send(topic, 0, [number])
        driver.wait()


def recreate(bootstrap: str, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.delete_topics([topic])[topic].result(20)
    while topic in admin.list_topics(timeout=20).topics:
        pass  # Kafka deletes it a little later
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(20)


@pytest.mark.parametrize("program", sorted(ALL.keys() - {BY_TOPIC_ID}), indirect=True)
@pytest.mark.parametrize("is_used", [False, True])
def test_a_producer_goes_on_in_a_topic_that_comes_again(
    broker: BrokerProcess, program: Program, *, is_used: bool
) -> None:
    """Nothing it sends is refused or lost, also when another producer was there first."""
    native = Native(broker.native)
    topic = f"again-{program.name}-{is_used}"
    native.create_topic(topic)
    driver = Driver(program)
    driver.open(broker.bootstrap_servers)
    send_all(driver, topic, BEFORE)
    recreate(broker.bootstrap_servers, topic)
    if is_used:
        other = native.init_producer_id()
        native.call(
            "produce",
            topic=topic,
            partition=0,
            producer_id=other,
            producer_epoch=0,
            base_sequence=0,
            records=[{"value": "another's"}],
        )
    send_all(driver, topic, AFTER)
    driver.end()
    assert (driver.deliveries.failed, driver.deliveries.fatal) == ([], None)
    stored = native.values(topic, 0)
    assert stored[is_used:] == [b"%d" % number for number in AFTER]


def test_a_producer_goes_on_after_its_expiry(forgetful: BrokerProcess, program: Program) -> None:
    """A pause longer than `producer_id_expiration_ms` costs nothing."""
    native, admin = Native(forgetful.native), Admin(forgetful.admin)
    topic = f"pause-{program.name}"
    native.create_topic(topic)
    driver = Driver(program)
    driver.open(forgetful.bootstrap_servers)
    send_all(driver, topic, BEFORE)
    while admin.get(f"/producers/{topic}/0")["count"]:
        pass  # until it is forgotten
    send_all(driver, topic, AFTER)
    driver.end()
    assert (driver.deliveries.failed, driver.deliveries.fatal) == ([], None)
    assert native.values(topic, 0) == [b"%d" % number for number in (*BEFORE, *AFTER)]
    decisions = admin.get("/decisions", topic=topic, limit=1000)["decisions"]
    assert {one["decision"] for one in decisions} == {"append"}


@pytest.fixture
def kafka(tmp_path: Path) -> Iterator[ApacheKafka]:
    kafka = ApacheKafka(tmp_path, {"auto.create.topics.enable": "false"}, version=KafkaVersion.V4)
    kafka.start()
    yield kafka
    kafka.kill()


@pytest.mark.kafka
def test_a_producer_by_topic_id_gives_up_as_with_kafka_4(
    broker: BrokerProcess, kafka: ApacheKafka
) -> None:
    """franz-go takes the topic for another one; both brokers answer UNKNOWN_TOPIC_ID."""
    program = PROGRAMS[BY_TOPIC_ID]
    require("java", *tool_of(program))
    outcomes = []
    for bootstrap in (broker.bootstrap_servers, kafka.address):
        admin = AdminClient({"bootstrap.servers": bootstrap})
        admin.create_topics([NewTopic("by-id", 1, 1)])["by-id"].result(20)
        driver = Driver(program)
        driver.open(bootstrap)
        send_all(driver, "by-id", BEFORE)
        recreate(bootstrap, "by-id")
        send_all(driver, "by-id", AFTER)
        driver.end()
        outcomes.append((len(driver.deliveries.acknowledged), driver.deliveries.failures))
    assert outcomes == [(10, {"UNKNOWN_TOPIC_ID": 10})] * 2
