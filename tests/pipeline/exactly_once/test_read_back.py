"""Reading back: it ends although others keep writing, and waits for its caller."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from echoless.client.sequencer import Identity
from echoless.client.topic_partition import TopicPartition
from echoless.pipeline.exactly_once.entries import SequenceRange
from echoless.pipeline.exactly_once.errors import SinkError
from echoless.pipeline.exactly_once.read_back import ReadBack
from echoless.pipeline.exactly_once.sequence_ranges import StoredRange
from echoless.protocol.records import Record, build_batch

TARGET = TopicPartition("orders", 0)
STRETCH = SequenceRange(topic="orders", partition=0, sequence=0, rows_before=0, log_end_offset=0)
OWN, OTHER = Identity(1, 0), Identity(2, 0)


class FakeLog:
    """A leader that has one record in each batch, and takes a second for every answer."""

    def __init__(self, own: int) -> None:
        """`own`: the number of the producer's records; others follow for ever."""
        self.seconds = 0.0
        self._own = own

    def log_ends(self, targets: list[TopicPartition]) -> dict[TopicPartition, int]:
        return dict.fromkeys(targets, self._own)

    def fetch(self, target: TopicPartition, offset: int) -> bytes:
        self.seconds += 1
        identity = OWN if offset < self._own else OTHER
        return build_batch(
            [Record(-1, 0, None, b"v", ())],
            producer_id=identity.producer_id,
            producer_epoch=identity.producer_epoch,
            base_sequence=offset,
            base_offset=offset,
        )


def stored(log: FakeLog, wanted: int) -> Iterator[object]:
    back = ReadBack(log, TARGET, timeout_s=10, clock_s=lambda: log.seconds)
    return back.rows([StoredRange(STRETCH, OWN, wanted)])


def test_records_that_are_lost_are_not_waited_for_while_others_write():
    """A leader had them, and lost them before they were committed."""
    with pytest.raises(SinkError, match="were not committed in time"):
        list(stored(FakeLog(own=3), wanted=4))


def test_a_long_log_may_take_its_time():
    """Existing records are read, however long that takes."""
    assert len(list(stored(FakeLog(own=30), wanted=30))) == 30


def test_whoever_takes_the_rows_may_be_slow():
    """Spark may need an hour for the rows that they are compared with."""
    log = FakeLog(own=30)
    for _ in stored(log, wanted=30):
        log.seconds += 3600
