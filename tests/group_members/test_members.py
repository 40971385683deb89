"""The programs that play members."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from confluent_kafka import Producer

from echoless.testkit.echoless import Echoless
from tests.compatibility.programs import JAVA
from tests.group_members.events import Read
from tests.group_members.members import Kind, Member

pytestmark = [pytest.mark.clients, pytest.mark.slow]

_PATIENCE_S = 60.0


def test_a_member_goes_on_that_was_removed_before_it_had_its_offsets(tmp_path: Path) -> None:
    """It stood still for longer than its session, or so the answer to its OffsetFetch says."""
    with Echoless() as echoless:
        topic = echoless.topic()
        producer = Producer(echoless.client_options)
        producer.produce(topic, b"0")
        assert producer.flush(_PATIENCE_S) == 0
        member = Member(Kind(JAVA[-1], "range", protocol="consumer"), 0, tmp_path)
        removed = {"type": "error", "code": "UNKNOWN_MEMBER_ID"}
        with echoless.faults.rule(removed, match={"api": "offset_fetch"}, times=1):
            member.start(echoless.client_options["bootstrap.servers"], topic, "g")
            deadline = time.monotonic() + _PATIENCE_S
            while not any(isinstance(event, Read) for event in member.tail.events):
                assert member.exit_status is None, member.said()
                assert time.monotonic() < deadline
                time.sleep(0.02)
                member.tail.read()
        assert member.leave() == 0
