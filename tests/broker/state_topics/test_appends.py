"""Appends to internal topics: one batch per turn of the loop, and an outcome for each token, in order."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace

import pytest

from echoless.broker.config.loading import LogFlush
from echoless.broker.metrics import Metrics
from echoless.broker.state_topics import appends
from echoless.broker.state_topics.append_parts import AppendParts
from echoless.broker.state_topics.appends import Appends
from echoless.broker.state_topics.leadership import Leadership
from echoless.coordinators.effects import InTransaction, StateRecord
from echoless.protocol.control_records import EndMarker, MarkerType, build_marker
from echoless.protocol.errors import ErrorCode, KafkaError
from echoless.protocol.record_batch import read_header, walk
from echoless.protocol.records import Record, build_batch, iterate_records
from echoless.storage.appended import Appended
from echoless.storage.file_system import StorageError
from echoless.storage.log_config import LogConfig
from tests.broker.partitions.fake_fencing import FakeFencing
from tests.broker.partitions.led import Led
from tests.broker.until import until
from tests.storage.one_log import NOW_MS, OneLog


@dataclass
class Noted:
    """The outcomes, in order."""

    outcomes: list[object] = field(default_factory=list)

    def committed(self, token: int) -> None:
        self.outcomes.append(token)

    def ended(self, producer_id: int, *, is_commit: bool) -> None:
        self.outcomes.append(f"{'commit' if is_commit else 'abort'} {producer_id}")

    def failed(self, token: int, code: ErrorCode, *, may_commit: bool) -> None:
        self.outcomes.append((token, code, may_commit))


class Appending:
    """Appends to a led partition."""

    def __init__(self, *, replicas: tuple[int, ...] = (1,), timeout_s: float = 60) -> None:
        fencing = FakeFencing(epochs={2: 7})
        self.led = Led(LogFlush.OS, replicas, fencing, OneLog(LogConfig(retention_ms=-1)))
        self.led.lead(2, isr=replicas)
        self.noted = Noted()
        self.metrics = Metrics()
        self.failures: list[StorageError] = []
        parts = AppendParts(
            now_ms=lambda: NOW_MS,
            wall_ms=lambda: NOW_MS,
            fail_storage=self.failures.append,
            metrics=self.metrics,
            timeout_s=timeout_s,
        )
        self.appends = Appends(Leadership.of(self.led.partition), self.noted, parts)

    def batches(self) -> list[list[bytes]]:
        """The keys of each batch in the log."""
        log = self.led.one.log
        data = log.read(0, 1 << 20, log.log_end_offset)
        return [
            [record.key or b"" for record in iterate_records(data[place : place + header.size])]
            for place, header in walk(data)
        ]

    def follower_has(self, offset: int) -> None:
        """The other replica fetches from this offset."""
        self.led.partition.note_fetch(2, 7, offset)

    async def turn(self) -> None:
        """Lets the loop go round, until futures have called back too."""
        for _ in range(3):
            await asyncio.sleep(0)


def records(*keys: str, size: int = 1) -> list[StateRecord]:
    return [StateRecord(key.encode(), bytes(size)) for key in keys]


async def test_the_appends_of_one_turn_are_one_batch() -> None:
    """The appends of the next turn are another one; each token is committed, in order."""
    one = Appending()
    one.appends.append(1, records("a", "b"))
    one.appends.append(2, records("c"))
    assert one.noted.outcomes == []
    await one.turn()
    one.appends.append(3, records("d"))
    await one.turn()
    assert one.batches() == [[b"a", b"b", b"c"], [b"d"]]
    assert one.noted.outcomes == [1, 2, 3]
    assert one.metrics.state_batches_appended_total == 2


async def test_an_append_is_never_divided() -> None:
    """The first append that does not fit into the batch of the turn begins the next one."""
    one = Appending()
    one.led.partition.rules = replace(one.led.partition.rules, bytes_max=1000)
    one.appends.append(1, records("a", "b", size=300))
    one.appends.append(2, records("c", "d", size=300))
    await one.turn()
    await one.turn()
    assert one.batches() == [[b"a", b"b"], [b"c", b"d"]]


async def test_one_batch_is_appended_in_a_step() -> None:
    """Others of the turn follow in later ones, and what is asked for meanwhile goes behind them."""
    one = Appending()
    one.led.partition.rules = replace(one.led.partition.rules, bytes_max=1000)
    for token in (1, 2, 3):
        one.appends.append(token, records(str(token), size=600))
    await asyncio.sleep(0)
    assert one.batches() == [[b"1"]]
    one.appends.append(4, records("4"))
    await one.turn()
    await one.turn()
    assert one.batches() == [[b"1"], [b"2"], [b"3", b"4"]]
    assert one.noted.outcomes == [1, 2, 3, 4]


async def test_a_batch_that_was_made_before_is_shared_by_no_other() -> None:
    """It is stored as it is, in its place."""
    one = Appending()
    many = records("b", "c")
    batch = build_batch([Record(0, NOW_MS - 5, record.key, record.value) for record in many])
    one.appends.append(1, records("a"))
    one.appends.append(2, many, batch)
    one.appends.append(3, records("d"))
    one.appends.append(4, records("e"))
    one.appends.append_now()
    assert one.batches() == [[b"a"], [b"b", b"c"], [b"d", b"e"]]
    assert one.noted.outcomes == [1, 2, 3, 4]


async def test_many_committed_records_are_notified_of_in_steps(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """However many batches the high watermark passes at once; a look that needs them has them all now."""
    monkeypatch.setattr(appends, "NOTIFIED_AT_ONCE_RECORDS", 2)
    one = Appending(replicas=(1, 2))
    for token in range(1, 7):
        one.appends.append(token, records(str(token)))
        one.appends.append_now()
    one.led.partition.note_fetch(2, 7, 6)
    steps = [list(one.noted.outcomes)]
    while len(one.noted.outcomes) < 4:
        await asyncio.sleep(0)
        steps.append(list(one.noted.outcomes))
    assert [1, 2] in steps
    assert [1, 2, 3, 4] in steps
    one.appends.append_now()
    assert one.noted.outcomes == [1, 2, 3, 4, 5, 6]
    await one.turn()
    assert one.noted.outcomes == [1, 2, 3, 4, 5, 6]


async def test_what_no_batch_can_hold_is_refused_alone() -> None:
    """MESSAGE_TOO_LARGE, with nothing written; the others of the turn are stored."""
    one = Appending()
    one.led.partition.rules = replace(one.led.partition.rules, bytes_max=1000)
    one.appends.append(1, records("a"))
    one.appends.append(2, records("b", size=2000))
    one.appends.append(3, records("c"))
    await one.turn()
    await one.turn()
    assert one.batches() == [[b"a"], [b"c"]]
    assert sorted(one.noted.outcomes, key=str) == [(2, ErrorCode.MESSAGE_TOO_LARGE, False), 1, 3]


async def test_nothing_is_committed_before_the_high_watermark_has_passed_it() -> None:
    """H2: a record in this log alone may still be lost."""
    one = Appending(replicas=(1, 2))
    one.appends.append(1, records("a"))
    await one.turn()
    assert one.batches() == [[b"a"]]
    assert one.noted.outcomes == []
    one.follower_has(1)
    await one.turn()
    assert one.noted.outcomes == [1]


async def test_a_deposed_leader_appends_nothing() -> None:
    """H1: an append of an earlier leader epoch is refused, as is one while leading is in doubt."""
    one = Appending()
    one.led.fencing.is_proved = False
    one.appends.append(1, records("a"))
    await one.turn()
    one.led.fencing.is_proved = True
    one.led.lead(3)
    one.appends.append(2, records("b"))
    await one.turn()
    assert one.batches() == []
    code = ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert one.noted.outcomes == [(1, code, False), (2, code, False)]


async def test_too_few_in_sync_replicas_refuse_an_append() -> None:
    """As they do a produce request with acks=all."""
    one = Appending()
    one.led.partition.rules = replace(one.led.partition.rules, min_insync_replicas=2)
    one.appends.append(1, records("a"))
    await one.turn()
    assert one.noted.outcomes == [(1, ErrorCode.NOT_ENOUGH_REPLICAS, False)]


async def test_after_the_timeout_an_append_has_failed_and_may_still_be_committed() -> None:
    """The records are in the log: `committed` follows if the replicas get them after all."""
    one = Appending(replicas=(1, 2), timeout_s=0)
    one.appends.append(1, records("a"))
    await until(lambda: one.noted.outcomes)
    assert one.noted.outcomes == [(1, ErrorCode.REQUEST_TIMED_OUT, True)]
    one.follower_has(1)
    await one.turn()
    assert one.noted.outcomes[1:] == [1]


async def test_records_that_too_few_replicas_have_are_not_acknowledged() -> None:
    """The ISR shrinks, so the high watermark passes what this broker alone has: 20, as a produce gets."""
    one = Appending(replicas=(1, 2))
    one.led.partition.rules = replace(one.led.partition.rules, min_insync_replicas=2)
    one.appends.append(1, records("a"))
    await one.turn()
    one.led.lead(2, isr=(1,), version=3)
    assert one.led.partition.high_watermark == 1
    await one.turn()
    assert one.noted.outcomes == [(1, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, True), 1]


async def test_an_append_is_committed_after_a_doubt_without_another_append() -> None:
    """It failed when the doubt began; once its replicas have it, the coordinator learns so, each doubt or not."""
    one = Appending(replicas=(1, 2))
    one.appends.append(1, records("a"))
    await one.turn()
    for _ in range(2):
        one.led.partition.waiters.fail(KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER))
        await one.turn()
    assert one.noted.outcomes == [(1, ErrorCode.NOT_LEADER_OR_FOLLOWER, True)]
    one.follower_has(1)
    await one.turn()
    assert one.noted.outcomes[1:] == [1]


async def test_an_unexpected_error_is_no_success() -> None:
    one = Appending(replicas=(1, 2))
    one.appends.append(1, records("a"))
    await one.turn()
    one.led.partition.waiters.fail(ZeroDivisionError())
    await one.turn()
    assert one.noted.outcomes == [(1, ErrorCode.UNKNOWN_SERVER_ERROR, True)]
    one.appends.close()
    assert len(one.led.partition.waiters.commit) == 0


async def test_a_closed_one_notifies_of_nothing() -> None:
    """The next leader decides what becomes of its records."""
    one = Appending(replicas=(1, 2))
    one.appends.append(1, records("a"))
    await one.turn()
    one.appends.append(2, records("b"))
    one.appends.close()
    one.led.partition.resign()
    await one.turn()
    assert one.noted.outcomes == []
    assert one.batches() == [[b"a"]]


@pytest.mark.parametrize("is_closed", [False, True])
async def test_a_failed_disk_is_reported_once(*, is_closed: bool) -> None:
    """Appends that wait have failed and may be stored; the log directory is offline."""
    one = Appending(replicas=(1, 2))
    one.appends.append(1, records("a"))
    await one.turn()
    if is_closed:
        one.appends.close()
    one.led.partition.waiters.fail(KafkaError(ErrorCode.KAFKA_STORAGE_ERROR))
    await one.turn()
    assert one.noted.outcomes == ([] if is_closed else [(1, ErrorCode.KAFKA_STORAGE_ERROR, True)])


def mark(one: Appending, producer_id: int, kind: MarkerType = MarkerType.COMMIT) -> int:
    """Stores a marker as the writer of markers does; returns the offset after it."""
    batch = build_marker(EndMarker(kind, 0), producer_id, 0, NOW_MS)
    result = one.led.partition.append_for_coordinator(batch, read_header(batch), NOW_MS)
    assert isinstance(result, Appended)
    return result.last_offset + 1


async def test_a_transactional_append_is_a_batch_of_its_own() -> None:
    """It has the producer's id and epoch and no sequence, and opens a transaction."""
    one = Appending()
    one.appends.append(1, records("a"))
    one.appends.append(2, records("b"), transaction=InTransaction(7, 3))
    one.appends.append(3, records("c"))
    one.appends.append_now()
    assert one.batches() == [[b"a"], [b"b"], [b"c"]]
    assert one.led.one.log.producers.open_transaction(7) == 1
    header = next(header for _, header in walk(one.led.one.log.read(1, 1, 2)))
    assert (header.producer_epoch, header.base_sequence, header.is_transactional) == (3, -1, True)
    assert one.noted.outcomes == [1, 2, 3]


async def test_an_append_of_an_older_producer_epoch_is_refused() -> None:
    """The token fails with the log's code, and nothing is stored."""
    one = Appending()
    one.appends.append(1, records("a"), transaction=InTransaction(7, 3))
    one.appends.append(2, records("b"), transaction=InTransaction(7, 2))
    one.appends.append_now()
    assert one.noted.outcomes == [1, (2, ErrorCode.INVALID_PRODUCER_EPOCH, False)]
    assert one.batches() == [[b"a"]]


async def test_a_marker_is_notified_of_after_what_comes_before_it() -> None:
    """Once it is committed, not when it is stored; only then what waits for it goes on."""
    one = Appending(replicas=(1, 2))
    one.appends.append(1, records("a"), transaction=InTransaction(7, 0))
    one.appends.append_now()
    end = mark(one, 7, MarkerType.ABORT)
    settled = one.appends.settled(end)
    one.follower_has(1)
    await one.turn()
    assert one.noted.outcomes == [1]
    assert not settled.done()
    one.follower_has(2)
    await one.turn()
    assert one.noted.outcomes == [1, "abort 7"]
    assert settled.result()
    assert one.appends.settled(end).result()


async def test_what_waits_for_a_marker_learns_that_the_lead_is_lost() -> None:
    """The same goes for what asks later; and no marker is listened to from then on."""
    one = Appending(replicas=(1, 2))
    end = mark(one, 7)
    settled = one.appends.settled(end)
    one.appends.close()
    assert not settled.result()
    assert not one.appends.settled(end).result()
    assert one.led.partition.marker_listener is None
