"""A real broker that kills itself at each named point, and what is left of it."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from echoless.testkit.admin import Admin
from echoless.testkit.broker_process import BrokerProcess
from echoless.testkit.faults import Faults
from tests.broker.faults.native_producer import NativeProducer

pytestmark = [pytest.mark.crash, pytest.mark.slow]

TOPIC: Final = "orders"
BATCHES: Final = 12
SMALL_SEGMENTS: Final = {"log_segment_bytes": "2048"}
"""Five of the batches: the log rolls twice."""
POINTS: Final = {
    "before_append": {},
    "after_append": {},
    "after_fsync": {"log_flush": "commit"},
    "before_response": {},
    "in_roll": {},
    "in_snapshot": {"log_flush": "commit"},
}
SKIPPED: Final = {"before_append": 7, "after_append": 7, "after_fsync": 7, "before_response": 7}


def rule_for(point: str) -> dict[str, Any]:
    match = {"api": "produce", "topic": TOPIC} if point == "before_response" else {"topic": TOPIC}
    return {
        "match": match,
        "schedule": {"skip": SKIPPED.get(point, 0)},
        "action": {"type": "crash", "point": point},
    }


@contextmanager
def broker_with(tmp_path: Path, rules: Any, **settings: str) -> Iterator[BrokerProcess]:
    """A broker that begins with rules from a file."""
    path = tmp_path / "rules.json"
    path.write_text(json.dumps(rules))
    settings = {**SMALL_SEGMENTS, **settings}
    with BrokerProcess(settings, data_dir=tmp_path / "data", faults_file=path) as broker:
        yield broker


@pytest.mark.parametrize("point", POINTS)
def test_after_a_crash_the_log_is_whole_and_a_resend_is_stored_once(
    point: str, tmp_path: Path, echoless_verify: Any
) -> None:
    """SIGKILL at the point; `echoless verify` finds nothing; every batch is in the log once."""
    with broker_with(tmp_path, [rule_for(point)], **POINTS[point]) as broker:
        with NativeProducer(broker.native) as producer:
            producer.create_topic(TOPIC)
            acknowledged = producer.send_until_the_end(TOPIC, range(BATCHES))
        assert broker.wait_for_end() == -signal.SIGKILL
        assert f"ends this process: {point}" in broker.log_tail()
        assert echoless_verify(broker.data_dir).code == 0
        (tmp_path / "rules.json").write_text('{"action": "twice", "match": {"topic": "no"}}')
        broker.start()
        with NativeProducer(broker.native, producer.producer_id) as producer:
            first = max(acknowledged - 3, 0)
            assert producer.send_until_the_end(TOPIC, range(first, BATCHES)) == BATCHES
            assert producer.stored_sequences(TOPIC) == list(range(BATCHES))


def test_rules_from_a_file_hold_from_the_first_request(tmp_path: Path) -> None:
    """They are there before anybody connects, with their names and counts."""
    lose = {"name": "lose", "match": {"api": "init_producer_id"}, "action": "close_before"}
    with broker_with(tmp_path, lose) as broker:
        faults = Faults(Admin(broker.admin))
        assert [rule["name"] for rule in faults.rules()] == ["lose"]
        with pytest.raises(ConnectionError), NativeProducer(broker.native):
            pass
        assert faults.rules()[0]["hits"] == 1
        faults.clear()
        with NativeProducer(broker.native) as producer:
            assert producer.producer_id >= 0


def test_a_single_broker_ends_with_its_session(tmp_path: Path) -> None:
    """`expire_session`: nothing can bring the session back, so the process ends in good order."""
    with BrokerProcess(data_dir=tmp_path / "data") as broker:
        Faults(Admin(broker.admin)).add("expire_session")
        assert broker.wait_for_end() == 1
