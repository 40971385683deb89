"""Recording what a broker process decides."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

from echoless.testkit.admin import AdminError
from echoless.testkit.echoless import Echoless
from echoless.testkit.recorder import Recorder
from echoless.testkit.scripted_producer import ScriptedBatch, ScriptedProducer

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def echoless() -> Iterator[Echoless]:
    with Echoless() as running:
        yield running


def _send(echoless: Echoless, topic: str, *base_sequences: int) -> None:
    with closing(ScriptedProducer.open(echoless.bootstrap_servers)) as producer:
        for base_sequence in base_sequences:
            producer.send(ScriptedBatch(topic, 0, 4000, 0, base_sequence, (b"value",)))
            producer.receive(timeout_s=10)


def test_block_is_recorded_whole_and_alone(echoless: Echoless) -> None:
    """Everything between its first and its last line, with the window before each append."""
    topic = echoless.topic()
    _send(echoless, topic, 0)
    with Recorder([echoless.broker.admin]) as recorder:
        _send(echoless, topic, 1, 2)
        recorder.settle()
        recorder.note("a pause", broker_id=1)
        _send(echoless, topic, 3)
    _send(echoless, topic, 4)
    told = [event.get("base_sequence", event.get("text")) for event in recorder.events]
    assert told == [1, 2, "a pause", 3]
    assert recorder.events[0]["window"] == [[0, 0]]


def test_selection_and_the_past(echoless: Echoless) -> None:
    """The filters of `/decisions` hold, and `last` begins with what is remembered."""
    ours, other = echoless.topic(), echoless.topic()
    _send(echoless, ours, 0)
    with Recorder([echoless.broker.admin], last=5, topic=ours) as recorder:
        _send(echoless, other, 0)
        _send(echoless, ours, 1)
    assert [event["base_sequence"] for event in recorder.events] == [0, 1]
    assert {event["topic"] for event in recorder.events} == {ours}


def test_requests_without_a_decision_arrive_by_the_end_of_the_block(echoless: Echoless) -> None:
    """Batches of no producer id are not decided about: only their requests are recorded."""
    topic = echoless.topic()
    with closing(ScriptedProducer.open(echoless.bootstrap_servers)) as producer:
        for _ in range(20):
            with Recorder([echoless.broker.admin], requests=True) as recorder:
                for _ in range(5):
                    producer.send(ScriptedBatch(topic, 0, -1, -1, -1, (b"value",)))
                    producer.receive(timeout_s=10)
            assert [event["api"] for event in recorder.events] == ["produce"] * 5


def test_a_broker_that_stands_still_is_reported(
    echoless: Echoless, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A recording never lacks in silence what has happened but does not arrive."""
    monkeypatch.setattr("echoless.testkit.recorder._SETTLE_S", 0.01)
    with Recorder([echoless.broker.admin]) as recorder:
        monkeypatch.setattr("echoless.testkit.recorder._Stream.set_fence", lambda _: 1)
        with pytest.raises(AdminError, match="nothing arrived"):
            recorder.settle()
        monkeypatch.undo()


def test_killed_broker_ends_its_recording() -> None:
    """Its earlier events stay, and no one waits for the dead."""
    with Echoless() as echoless:
        topic = echoless.topic()
        with Recorder([echoless.broker.admin]) as recorder:
            _send(echoless, topic, 0)
            recorder.settle()
            echoless.broker.kill()
        assert recorder.has_ended
        assert len(recorder.events) == 1
        with pytest.raises(AdminError, match="http://"), Recorder([echoless.broker.admin]):
            pass


def test_many_recordings_leave_no_reader_behind(echoless: Echoless) -> None:
    """Each ends with its block: the broker's bound on readers is never reached."""
    for _ in range(40):
        with Recorder([echoless.broker.admin]):
            pass
