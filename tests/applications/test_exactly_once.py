"""Kafka Streams with `exactly_once_v2`: a word count that is killed again and again counts every word once."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from echoless.protocol.record_batch import BatchHeader, walk
from tests.applications.servers import OneServer
from tests.applications.tools import JARS, STREAMS_4_JARS
from tests.applications.word_count import COUNTS, PARTITIONS, Counting
from tests.support.echoless import Echoless
from tests.toolchain import require

pytestmark = [pytest.mark.clients, pytest.mark.slow]

_KILLS = 3
_LINES_AT_ONCE = 40
_TIMEOUT = "transaction.timeout.ms=4000"


def stored(broker: Echoless, *partitions: int) -> Iterator[BatchHeader]:
    """The headers of all batches of results in these partitions, in order, aborted ones and markers among them."""
    for partition in partitions:
        segments = sorted(broker.data_dir.rglob(f"{COUNTS}-{partition}/*.log"))
        assert segments
        for segment in segments:
            yield from (header for _, header in walk(segment.read_bytes()))


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Echoless]:
    """A broker whose members may have short sessions."""
    settings = {"group_min_session_timeout_ms": "1000"}
    echoless = Echoless(tmp_path / "broker", settings)
    echoless.start()
    yield echoless
    echoless.kill()


@pytest.mark.parametrize("jars", [JARS, STREAMS_4_JARS], ids=["3.9", "4.2"])
def test_a_word_count_that_is_killed_counts_every_word_once(
    tmp_path: Path, broker: Echoless, jars: Path
) -> None:
    """Readers of committed records are given 1, 2, 3, ... of each word, though more is stored: what was aborted.

    Streams 4 speaks the second generation of the protocol: every transaction has an epoch of its own (KIP-890).

    The last life but one has lost its directory and with it its transactional id: the transaction that its
    predecessor left open has to time out.
    """
    require("applications", "streams-4")
    counting = Counting(OneServer(broker), tmp_path, jars)
    for life in range(_KILLS):
        running = counting.begun(life, "state" if life < _KILLS - 1 else "new", _TIMEOUT)
        before = counting.written
        counting.write(_LINES_AT_ONCE)
        running.wait_until(partial(counting.flow, before), "it counts, and a transaction is open")
        running.kill()
    running = counting.begun(_KILLS, "new", _TIMEOUT)
    running.wait_until(counting.is_done, "everything is counted")
    counting.write(PARTITIONS)
    running.wait_until(counting.is_done, "two more lines are counted, in another transaction")
    running.kill()
    assert counting.committed.counts == counting.wanted()
    headers = stored(broker, *range(PARTITIONS))
    records = sum(header.record_count for header in headers if not header.is_control)
    assert records > counting.committed.records, "something was aborted"
    ended = [(one.producer_id, one.producer_epoch) for one in stored(broker, 0) if one.is_control]
    has_new_epochs = len(set(ended)) == len(ended)
    assert has_new_epochs == (jars is STREAMS_4_JARS), ended
    counting.committed.close()
