"""The cost of a bug: the connection that met it, unless state is in doubt. Real processes."""

from __future__ import annotations

import itertools
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from echoless.broker.serve import EXIT_BUG
from echoless.protocol.errors import ErrorCode
from echoless.protocol.state_records.partitioner import partition_of
from tests.broker.handlers.one_group import GROUP, created, heartbeat, join, sync
from tests.broker.handlers.test_consumer_group_heartbeat import beat
from tests.hostile.target import TIMEOUT_S, framed, header, is_answering, talk, until
from tests.support.broken_broker import HALFWAY
from tests.support.echoless import Echoless
from tests.support.native_client import NativeConnection
from tests.support.raw_client import ConnectionEndedError, RawConnection, create_topic

pytestmark = pytest.mark.slow
PARTITIONS = 8
"""Partitions of `__consumer_offsets` in a test."""


@pytest.fixture
def broken(tmp_path: Path) -> Iterator[Echoless]:
    broker = Echoless(tmp_path, module="tests.support.broken_broker")
    broker.start()
    yield broker
    broker.kill()


def test_an_assertion_in_a_handler_does_not_end_the_process(broken: Echoless):
    """The connection ends; the log has the traceback, the metric counts, others are served."""
    request = framed(header(60, 0, flexible=True) + b"\0\0")
    for _ in range(3):
        assert talk(broken.kafka_address, request) == b""
    assert is_answering(broken.kafka_address)
    with urllib.request.urlopen(f"http://{broken.admin_address}/metrics", timeout=TIMEOUT_S) as r:
        assert "echoless_requests_failed_total 3.0" in r.read().decode()
    assert broken.terminate() == 0
    assert broken.process.log().count("AssertionError: a bug of the handler") == 3


async def test_a_bug_of_a_coordinator_costs_one_group(broken: Echoless):
    """The connection of its request ends; its group is loaded again, and others of its partition are not."""
    groups = (f"other{number}" for number in itertools.count())
    same = (
        one for one in groups if partition_of(one, PARTITIONS) == partition_of(GROUP, PARTITIONS)
    )
    other = next(same)
    kafka = await RawConnection.open(broken.kafka_address)
    await create_topic(kafka, "t", 4)
    await created(kafka)
    joined = await join(kafka, group=other)
    generation, member_id = joined.generation_id, joined.member_id
    await sync(kafka, generation, member_id, {member_id: b"all"}, group_id=other)
    assert (await beat(kafka, "m1", 0)).member_epoch == 1
    bad = await RawConnection.open(broken.kafka_address)
    with pytest.raises(ConnectionEndedError):
        await beat(bad, "m2", 0, instance_id=HALFWAY.decode())
    await bad.close()
    assert await heartbeat(kafka, generation, member_id, group_id=other) == ErrorCode.NONE
    assert (await beat(kafka, "m1", 1)).error_code == ErrorCode.NONE
    assert (await beat(kafka, "m2", 0)).member_epoch == 2
    await kafka.close()
    log = broken.process.log()
    assert f"of the groups of __consumer_offsets-{partition_of(GROUP, PARTITIONS)}, 'g' is" in log
    assert "are loaded again" not in log
    assert broken.terminate() == 0


async def test_an_append_that_fails_halfway_ends_the_process(broken: Echoless):
    """The content of the log is unknown: exit 70, and a start reads it again."""
    client = await NativeConnection.open(broken.native_address)
    await client.call("create_topic", topic="t", partitions=1)
    produce = {"topic": "t", "partition": 0}
    answer = await client.call("produce", **produce, records=[{"value": b"whole"}])
    assert answer["error"]["code"] == 0
    with pytest.raises((EOFError, ConnectionError)):
        await client.call("produce", **produce, records=[{"value": HALFWAY}])
    await client.close()
    until(lambda: broken.process.exit_status is not None, "the process ends")
    assert broken.process.exit_status == EXIT_BUG
    assert "StateInDoubtError: Partition.append failed" in broken.process.log()
