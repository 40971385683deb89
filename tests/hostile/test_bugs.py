"""The cost of a bug: the connection that met it, unless state is in doubt. Real processes."""

from __future__ import annotations

import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from echoless.broker.serve import EXIT_BUG
from tests.hostile.target import TIMEOUT_S, framed, header, is_answering, talk, until
from tests.support.broken_broker import HALFWAY
from tests.support.echoless import Echoless
from tests.support.native_client import NativeConnection

pytestmark = pytest.mark.slow


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
