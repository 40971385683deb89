"""The counters, log lines and memory of each decision."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any, cast

import pytest

from echoless.broker.decisions.decisions import Decisions, window_of
from echoless.broker.decisions.events import FaultHit, TransactionStep, TransactionStepName
from echoless.broker.decisions.stream import DecisionStream, Selection
from echoless.broker.metrics import Metrics
from echoless.broker.network.request import Peer, Request
from echoless.broker.partitions.partition import Partition
from echoless.protocol.dedup import BatchMetadata, Duplicate, ProducerEntry, Reject
from echoless.protocol.errors import ErrorCode
from echoless.protocol.record_batch import BatchHeader
from echoless.storage.appended import Appended

_REQUEST = Request(0, 9, 1, "client", None, Peer(1, "10.0.0.1:5000"))
_ENTRY = ProducerEntry(0, 0, 0, (BatchMetadata(1, 1, 1, 0, 5), BatchMetadata(3, 3, 1, 0, 5)))


def _partition(topic: str = "orders", entry: ProducerEntry | None = None) -> Partition:
    """As much of a partition as a report reads."""
    producers: Any = {} if entry is None else {7: entry}
    return cast(
        "Partition", SimpleNamespace(topic=topic, index=2, log=SimpleNamespace(producers=producers))
    )


def _header(producer_id: int = 7, base_sequence: int = 4) -> BatchHeader:
    return BatchHeader(0, 100, 0, 2, 5, 0, 1, 0, 0, producer_id, 0, base_sequence, 2)


def _append(decisions: Decisions, partition: Partition, header: BatchHeader) -> None:
    appended = Appended(base_offset=4, last_offset=5, timestamp=0, log_append_time=-1)
    decisions.record(_REQUEST, partition, header, appended, 1000)


def _hit(number: int = 0) -> FaultHit:
    return FaultHit(number, 1000, "slow", "freeze", "", 0, 0, None, "")


def test_append_is_remembered_with_its_offset_and_its_client() -> None:
    """An appended batch can be looked up with its offset and its client."""
    decisions = Decisions(Metrics())
    _append(decisions, _partition(), _header())
    (outcome,) = decisions.latest(10)
    assert (outcome.number, outcome.outcome, outcome.base_offset) == (1, "append", 4)
    assert (outcome.topic, outcome.partition, outcome.client_id) == ("orders", 2, "client")
    assert (outcome.address, outcome.time_ms) == ("10.0.0.1:5000", 1000)
    assert (outcome.connection_id, outcome.correlation_id) == (1, 1)
    assert outcome.window is None, "no one follows, so it is not looked up"


def test_gap_is_counted_and_logged_with_the_window(caplog: pytest.LogCaptureFixture) -> None:
    """Every 45 is a correctness event: counted, remembered, and logged with what it was judged by."""
    metrics = Metrics()
    decisions = Decisions(metrics)
    reject = Reject(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, "sequence 9 does not follow 3")
    with caplog.at_level(logging.WARNING):
        decisions.record(_REQUEST, _partition(entry=_ENTRY), _header(), reject, 1000)
    (outcome,) = decisions.latest(1)
    assert metrics.rejects == {"OUT_OF_ORDER_SEQUENCE_NUMBER": 1}
    assert (outcome.outcome, outcome.reason) == ("reject", "sequence 9 does not follow 3")
    assert outcome.window == ((0, 1), (2, 3))
    assert "orders-2" in caplog.text
    assert "window [(0, 1), (2, 3)]" in caplog.text


def test_fenced_producer_is_counted_but_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    """An old epoch is the protocol at work, so it makes no line."""
    metrics = Metrics()
    reject = Reject(ErrorCode.INVALID_PRODUCER_EPOCH, "epoch 0 is older")
    Decisions(metrics).record(_REQUEST, _partition(), _header(), reject, 1000)
    assert metrics.rejects == {"INVALID_PRODUCER_EPOCH": 1}
    assert not caplog.records


def test_repeat_is_remembered_with_the_offset_of_the_original() -> None:
    """A duplicate shows the offset that its client was given."""
    metrics = Metrics()
    decisions = Decisions(metrics)
    duplicate = Duplicate(_ENTRY.batches[1], divergent=False)
    decisions.record(_REQUEST, _partition(), _header(), duplicate, 1000)
    (outcome,) = decisions.latest(1)
    assert (outcome.outcome, outcome.base_offset) == ("duplicate", 2)
    assert outcome.window == ()
    assert (metrics.duplicates_total, metrics.divergent_duplicates_total) == (1, 0)


def test_repeat_with_other_bytes_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """Same numbers and other bytes is acknowledged, counted on its own, and logged."""
    metrics = Metrics()
    decisions = Decisions(metrics)
    duplicate = Duplicate(_ENTRY.batches[1], divergent=True)
    decisions.record(_REQUEST, _partition(), _header(), duplicate, 1000)
    assert decisions.latest(1)[0].outcome == "divergent_duplicate"
    assert (metrics.duplicates_total, metrics.divergent_duplicates_total) == (1, 1)
    assert "with other bytes" in caplog.text


def test_appends_never_push_out_a_refusal() -> None:
    """However many batches are appended, the last refusals stay to be seen."""
    decisions = Decisions(Metrics(), capacity=3)
    decisions.record(
        _REQUEST, _partition(), _header(), Reject(ErrorCode.UNKNOWN_PRODUCER_ID, "gone"), 1
    )
    for _ in range(10):
        _append(decisions, _partition(), _header())
    assert [outcome.number for outcome in decisions.latest(10)] == [11, 10, 9, 1]


def test_outcomes_are_newest_first_and_can_be_narrowed() -> None:
    """A producer or a topic can be picked, and at most the asked number comes back."""
    decisions = Decisions(Metrics())
    _append(decisions, _partition("orders"), _header(7))
    _append(decisions, _partition("orders"), _header(8))
    _append(decisions, _partition("bills"), _header(8))
    assert [o.number for o in decisions.latest(2)] == [3, 2]
    assert [o.number for o in decisions.latest(9, Selection(8, "orders"))] == [2]
    assert [o.number for o in decisions.latest(9, Selection(topic="none"))] == []


def test_fault_is_numbered_among_the_outcomes() -> None:
    """Faults and outcomes have one order: the one in which they happened; faults are counted, too."""
    metrics = Metrics()
    decisions = Decisions(metrics)
    _append(decisions, _partition(), _header())
    decisions.record_fault(_hit(number=99))
    _append(decisions, _partition(), _header())
    assert [event.number for event in decisions.latest_events(9)] == [1, 2, 3]
    assert [event.number for event in decisions.latest_events(2)] == [2, 3]
    assert [outcome.number for outcome in decisions.latest(9)] == [3, 1]
    assert [hit.number for hit in decisions.latest_faults(9)] == [2]
    assert metrics.faults == {"freeze": 1}


async def test_everybody_who_follows_is_told_until_they_leave() -> None:
    """Each stream gets what comes while it follows, and nothing after."""
    decisions = Decisions(Metrics())
    first, second = DecisionStream(), DecisionStream()
    decisions.follow(first)
    decisions.follow(second)
    decisions.record_fault(_hit())
    decisions.unfollow(first)
    assert decisions.is_followed
    _append(decisions, _partition(), _header())
    decisions.unfollow(second)
    assert not decisions.is_followed
    told = [await stream.take() for stream in (first, second)]
    assert [[e.number for e in waiting.events] for waiting in told if waiting] == [[1], [1, 2]]


def test_window_is_what_the_partition_remembers_at_this_moment() -> None:
    """First and last sequences, oldest first; empty for a producer that is not known."""
    partition = _partition(entry=_ENTRY)
    assert window_of(partition, 7) == ((0, 1), (2, 3))
    assert window_of(partition, 8) == ()


def test_the_memory_of_long_client_ids_is_bounded() -> None:
    """Kafka's header has room for 32 KB, and ten thousand producers are remembered."""
    decisions = Decisions(Metrics())
    request = Request(0, 9, 1, "c" * 30_000, None, Peer(1, "10.0.0.1:5000"))
    appended = Appended(base_offset=4, last_offset=5, timestamp=0, log_append_time=-1)
    decisions.record(request, _partition(), _header(), appended, 1000)
    decisions.record_fault(_hit()._replace(client_id="c" * 30_000))
    last = decisions.last_of(7)
    assert last is not None
    assert last.client_id == "c" * 255
    assert {event.client_id for event in decisions.latest_events(2)} == {"c" * 255}


def _step(client_id: str | None = None) -> TransactionStep:
    return TransactionStep(0, 1000, TransactionStepName.COMMIT, "t", 7, 0, client_id=client_id)


def test_a_step_is_made_when_someone_looks() -> None:
    """Then it has the number of the moment in which it was recorded; one of large values is made at once, and once."""
    decisions, made = Decisions(Metrics()), list[str]()

    def make(name: str) -> TransactionStep:
        made.append(name)
        return _step("c" * 30_000)

    decisions.record_transaction(make, "first")
    _append(decisions, _partition(), _header())
    decisions.record_transaction(make, "large", is_large=True)
    assert made == ["large"]
    steps = decisions.latest_transactions(9)
    assert made == ["large", "first"]
    assert [(one.number, one.client_id) for one in steps] == [(3, "c" * 255), (1, "c" * 255)]


async def test_who_follows_is_shown_a_step_at_once() -> None:
    """And a later look back finds the same one."""
    decisions, stream = Decisions(Metrics()), DecisionStream()
    decisions.follow(stream)
    decisions.record_transaction(_step)
    shown = await stream.take()
    assert shown is not None
    assert shown.events == decisions.latest_transactions(9) == [_step()._replace(number=1)]
