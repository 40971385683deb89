"""The cluster of docker-compose.yml: brokers killed, paused, stopped and restarted under load."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from containers.cluster import BOOTSTRAP, BOOTSTRAP_INSIDE, BROKER_IDS, Cluster
from containers.conftest import FAILED
from containers.numbered_batch import NumberedBatch, new_producer_id
from containers.podman import podman
from containers.records import Sender, assert_exactly_once, read_all
from containers.waiting import wait_until

STOP_S_MAX = 5.0
RECORDS = 1000
"""Acknowledged before and after each fault, at least."""
_INSIDE_PRODUCER = Path(__file__).parent / "inside_producer.py"


@pytest.fixture(scope="module")
def running() -> Iterator[Cluster]:
    """One cluster for this file, removed with its volumes afterwards, as are those of a broken run."""
    cluster = Cluster()
    cluster.down("--volumes")
    try:
        cluster.up()
        yield cluster
    finally:
        cluster.down("--volumes")


@pytest.fixture
def cluster(running: Cluster, request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """The cluster with every broker alive; after a failure the brokers' logs are shown."""
    running.revive()
    for number in BROKER_IDS:
        running.wait_for_broker(number)
    yield running
    if request.node.stash.get(FAILED, default=False):
        for number, broker in running.brokers.items():
            print(f"--- broker {number}\n{broker.log()[-4000:]}")


@pytest.fixture
def topic(cluster: Cluster, request: pytest.FixtureRequest) -> str:
    """A topic of one partition on all brokers, two of which must have a record to acknowledge it."""
    name = request.node.name.removeprefix("test_")
    client = AdminClient({"bootstrap.servers": BOOTSTRAP})
    client.create_topics([NewTopic(name, 1, 3)])[name].result(timeout=30)
    cluster.wait_for_in_sync(name, 3)
    return name


@pytest.fixture
def sender(topic: str) -> Iterator[Sender]:
    """A producer with some records acknowledged already, still sending."""
    sender = Sender(BOOTSTRAP, topic)
    sender.wait_for(RECORDS)
    yield sender
    sender.abandon()


def test_clients_on_both_sides(cluster: Cluster, topic: str) -> None:
    """Clients on the host and inside the network are each given addresses of their own side."""
    script = _INSIDE_PRODUCER.read_bytes()
    acknowledged = cluster.run_inside(script, BOOTSTRAP_INSIDE, topic, str(RECORDS))
    assert acknowledged == str(RECORDS)
    sent = [str(number) for number in range(RECORDS)]
    assert_exactly_once(read_all(BOOTSTRAP, topic), sent)


def test_killed_leader(cluster: Cluster, topic: str, sender: Sender) -> None:
    """The leader is killed while a producer sends: nothing is lost, nothing is stored twice."""
    leader = cluster.leader(topic)
    cluster.brokers[leader].kill()
    sender.wait_for(RECORDS)
    assert cluster.leader(topic) != leader
    cluster.brokers[leader].start()
    cluster.wait_for_broker(leader)
    cluster.wait_for_in_sync(topic, 3)
    sender.wait_for(RECORDS)
    sent = sender.finish()
    assert_exactly_once(read_all(BOOTSTRAP, topic), sent)


def test_new_leader_knows_the_producers(cluster: Cluster, topic: str) -> None:
    """A batch that the killed leader acknowledged is a duplicate to the next one."""
    leader = cluster.leader(topic)
    producer_id = new_producer_id(cluster.native_address(leader))
    batch = NumberedBatch(topic=topic, producer_id=producer_id, base_sequence=0)
    first = batch.send(cluster.native_address(leader))
    cluster.brokers[leader].kill()
    cluster.wait_for_in_sync(topic, 2)
    repeat = batch.send(cluster.native_address(cluster.leader(topic)))
    assert (repeat["duplicate"], repeat["base_offset"]) == (True, first["base_offset"])
    cluster.brokers[leader].start()


def test_paused_leader(cluster: Cluster, topic: str, sender: Sender) -> None:
    """A leader paused until another one leads acknowledges nothing more after it resumes."""
    leader = cluster.leader(topic)
    cluster.brokers[leader].pause()
    sender.wait_for(RECORDS)
    cluster.brokers[leader].unpause()
    sender.wait_for(RECORDS)
    cluster.wait_for_in_sync(topic, 3)
    sent = sender.finish()
    assert_exactly_once(read_all(BOOTSTRAP, topic), sent)


def test_stopped_leader(cluster: Cluster, topic: str, sender: Sender) -> None:
    """SIGTERM hands the leadership over and ends the container with 0 within five seconds."""
    leader = cluster.brokers[cluster.leader(topic)]
    begun = time.monotonic()
    leader.stop()
    took_s = time.monotonic() - begun
    assert leader.state["ExitCode"] == 0
    assert took_s < STOP_S_MAX
    sender.wait_for(RECORDS)
    leader.start()
    cluster.wait_for_in_sync(topic, 3)
    sent = sender.finish()
    assert_exactly_once(read_all(BOOTSTRAP, topic), sent)


def test_broker_that_dies_by_itself(cluster: Cluster, topic: str, sender: Sender) -> None:
    """The restart policy brings it back, and it is in sync again."""
    leader = cluster.leader(topic)
    broker = cluster.brokers[leader]
    restarts = broker.restarts
    broker.signal_process("KILL")
    wait_until(lambda: broker.restarts > restarts, "the restart policy acts")
    cluster.wait_for_broker(leader)
    cluster.wait_for_in_sync(topic, 3)
    sender.wait_for(RECORDS)
    sent = sender.finish()
    assert_exactly_once(read_all(BOOTSTRAP, topic), sent)


def test_volumes_outlive_the_containers(cluster: Cluster, topic: str) -> None:
    """`down` and `up` again: the records are there, and a resend is still a duplicate."""
    leader = cluster.leader(topic)
    producer_id = new_producer_id(cluster.native_address(leader))
    batches = [
        NumberedBatch(topic=topic, producer_id=producer_id, base_sequence=sequence)
        for sequence in (0, 3, 6, 9, 12)
    ]
    offsets = [batch.send(cluster.native_address(leader))["base_offset"] for batch in batches]
    cluster.stop()
    assert [broker.state["ExitCode"] for broker in cluster.brokers.values()] == [0, 0, 0]
    cluster.down()
    assert "echoless-test" not in podman("ps", "--format", "{{.Names}}")
    cluster.up()
    cluster.wait_for_in_sync(topic, 3)
    native_address = cluster.native_address(cluster.leader(topic))
    answers = [batch.send(native_address) for batch in batches]
    assert [answer["base_offset"] for answer in answers] == offsets
    assert all(answer["duplicate"] for answer in answers)
    assert_exactly_once(read_all(BOOTSTRAP, topic), [str(number) for number in range(15)])
