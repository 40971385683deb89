"""A single container, as a user starts it to test a producer: `podman run -p 9092:9092 echoless`."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator

import pytest

from containers.numbered_batch import NumberedBatch, create_topic, new_producer_id
from containers.podman import Container, podman
from containers.records import Sender, assert_exactly_once, read_all
from containers.waiting import wait_until

RunBroker = Callable[..., Container]

STOP_S_MAX = 5.0


@pytest.fixture
def volume() -> Iterator[str]:
    """A fresh volume, gone after the test."""
    name = f"echoless-test-{uuid.uuid4().hex[:8]}"
    podman("volume", "create", name)
    yield name
    podman("volume", "rm", "--force", name)


def test_producer_on_the_host(run_broker: RunBroker) -> None:
    """With the image's defaults a client of the published port gets an address it can reach.

    The advertised address is 127.0.0.1:9092, so the port has to be published under its own number.
    """
    broker = run_broker("-p", "127.0.0.1:9092:9092")
    assert broker.is_healthy()
    sender = Sender("127.0.0.1:9092", "orders")
    try:
        sender.wait_for(1000)
        sent = sender.finish()
    finally:
        sender.abandon()
    assert_exactly_once(read_all("127.0.0.1:9092", "orders"), sent)


def test_nothing_is_written_outside_of_the_volume(run_broker: RunBroker) -> None:
    """The broker is not root, and works on a read-only image."""
    broker = run_broker("--read-only", "--cap-drop", "ALL")
    assert broker.exec("id", "-un") == "echoless"
    native = broker.port(9093)
    create_topic(native, "t")
    batch = NumberedBatch(topic="t", producer_id=new_producer_id(native), base_sequence=0)
    assert not batch.send(native)["duplicate"]


def test_signals_reach_the_broker(run_broker: RunBroker) -> None:
    """SIGTERM ends the container with 0 within five seconds, and snapshots are written."""
    broker = run_broker()
    native = broker.port(9093)
    create_topic(native, "t")
    NumberedBatch(topic="t", producer_id=new_producer_id(native), base_sequence=0).send(native)
    begun = time.monotonic()
    broker.stop()
    assert time.monotonic() - begun < STOP_S_MAX
    assert broker.state["ExitCode"] == 0
    assert "stopping" in broker.log()


def test_signal_before_the_broker_listens(run_broker: RunBroker) -> None:
    """A container that is stopped at once does not wait for SIGKILL: process 1 forwards signals."""
    broker = run_broker()
    broker.stop()
    begun = time.monotonic()
    broker.start()
    broker.stop()
    assert time.monotonic() - begun < STOP_S_MAX


def test_repeat_is_known_after_a_crash_in_a_new_container(
    run_broker: RunBroker, volume: str
) -> None:
    """Records and producer state are on the volume: a resend is a duplicate in the next container."""
    mount = ("-v", f"{volume}:/data")
    first = run_broker(*mount)
    native = first.port(9093)
    create_topic(native, "t")
    producer_id = new_producer_id(native)
    batches = [
        NumberedBatch(topic="t", producer_id=producer_id, base_sequence=sequence)
        for sequence in (0, 3, 6)
    ]
    offsets = [batch.send(native)["base_offset"] for batch in batches]
    first.kill()
    first.remove()
    native = run_broker(*mount).port(9093)
    answers = [batch.send(native) for batch in batches]
    assert [answer["base_offset"] for answer in answers] == offsets == [0, 3, 6]
    assert all(answer["duplicate"] for answer in answers)
    after = NumberedBatch(topic="t", producer_id=producer_id, base_sequence=9).send(native)
    assert (after["base_offset"], after["duplicate"]) == (9, False)


def test_health_is_the_brokers_own(run_broker: RunBroker) -> None:
    """A broker that answers nothing is unhealthy, and healthy again when it resumes."""
    broker = run_broker()
    assert broker.is_healthy()
    broker.signal_process("STOP")
    assert not broker.is_healthy()
    broker.signal_process("CONT")
    wait_until(broker.is_healthy, "healthy again")


def test_command_runs_in_the_container(run_broker: RunBroker) -> None:
    """`podman exec NAME echoless ...` talks to the broker in the same container."""
    broker = run_broker()
    broker.exec("echoless", "topics", "create", "t")
    assert "t" in broker.exec("echoless", "topics", "list").split()
