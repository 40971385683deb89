"""Members of every client whose OffsetFetch is refused read on from their committed offsets.

With Kafka's answer librdkafka reads nothing any more (#5586), and aiokafka begins anew.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from echoless.testing import Echoless
from tests.compatibility.programs import FRANZ_GO, JAVA, LIBRDKAFKA
from tests.group_members.events import Read
from tests.group_members.members import KAFKAJS_KIND, Kind, Member, kinds_of

pytestmark = [pytest.mark.clients, pytest.mark.slow]

_TOPIC: Final = "orders"
_RECORDS: Final = 30
_PARTITIONS: Final = 3
_COMMITTED: Final = 4
"""The committed offset of each partition."""
_LEFT: Final = {(p, o) for p in range(_PARTITIONS) for o in range(_COMMITTED, 10)}
_REFUSALS: Final = 2
_PATIENCE_S: Final = 60.0
_LOOK_S: Final = 0.05
_CONSUMER: Final = [
    Kind(program, "uniform", protocol="consumer") for program in (LIBRDKAFKA, JAVA[1])
]
_CODES: Final = ["COORDINATOR_NOT_AVAILABLE", "NOT_COORDINATOR"]
_KINDS: Final = [
    *(kind for kind in kinds_of("range") if not kind.gives_up),
    *_CONSUMER,
    Kind(FRANZ_GO, "cooperative-sticky"),
    KAFKAJS_KIND,
]


@pytest.fixture(scope="module")
def broker() -> Iterator[Echoless]:
    with Echoless({"group_min_session_timeout_ms": "1000"}) as broker:
        broker.topic(_TOPIC, partitions=_PARTITIONS)
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
        for number in range(_RECORDS):
            producer.produce(_TOPIC, str(number), partition=number % _PARTITIONS)
        assert producer.flush() == 0
        yield broker


@pytest.mark.parametrize(
    ("kind", "code"),
    [
        *((kind, code) for kind in _KINDS for code in _CODES),
        (_CONSUMER[0], "STALE_MEMBER_EPOCH"),
    ],
    ids=lambda one: one.name if isinstance(one, Kind) else one,
)
def test_member_reads_after_refusals(
    broker: Echoless, tmp_path: Path, kind: Kind, code: str
) -> None:
    """Two in a row, as from a coordinator that is about to move."""
    member = Member(kind, 0, tmp_path)
    group = f"{kind.name}-{code}"
    commit(broker.bootstrap_servers, group)
    match = {"api": "offset_fetch", "group": group}
    refusing = {"type": "error", "code": code}
    with broker.faults.rule(refusing, match=match, times=_REFUSALS) as rule:
        member.start(broker.bootstrap_servers, _TOPIC, group)
        try:
            read_rest(member)
            assert rule.hits == _REFUSALS
        finally:
            member.kill()


def commit(bootstrap: str, group: str) -> None:
    committer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    offsets = [TopicPartition(_TOPIC, index, _COMMITTED) for index in range(_PARTITIONS)]
    committer.commit(offsets=offsets, asynchronous=False)
    committer.close()


def read_rest(member: Member) -> None:
    """Returns when every record that is left has reached the member; fails with one that was read before."""
    read: set[tuple[int, int]] = set()
    deadline = time.monotonic() + _PATIENCE_S
    while read != _LEFT:
        found = [event for event in member.tail.read() if isinstance(event, Read)]
        read.update((one.partition, one.offset) for one in found)
        assert read <= _LEFT, f"read again: {sorted(read - _LEFT)}"
        assert time.monotonic() < deadline, f"not read: {sorted(_LEFT - read)}: {member.said()}"
        time.sleep(_LOOK_S)
