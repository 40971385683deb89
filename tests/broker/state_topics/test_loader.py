"""Loading a partition of an internal topic: every record once, and nothing that could still be cut off."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

import pytest

from echoless.broker.config.loading import LogFlush
from echoless.broker.state_topics import loader
from echoless.broker.state_topics.appends import in_transaction
from echoless.broker.state_topics.leadership import Leadership
from echoless.broker.state_topics.loader import ReplayReceiver, load
from echoless.protocol.control_records import EndMarker, MarkerType, build_marker
from echoless.protocol.errors import DecodeError, ErrorCode, KafkaError
from echoless.protocol.record_batch import read_header
from echoless.protocol.records import Record, build_batch
from echoless.storage.log_config import LogConfig
from tests.broker.partitions.fake_fencing import FakeFencing
from tests.broker.partitions.led import Led
from tests.broker.until import until
from tests.storage.one_log import NOW_MS, OneLog

EPOCH = 2


@dataclass
class Loading:
    """A led partition with records in it."""

    replicas: tuple[int, ...] = (1,)
    applied: list[tuple[bytes, bytes | None]] = field(default_factory=list)
    in_transactions: list[tuple[int, bytes | bool]] = field(default_factory=list)
    led: Led = field(init=False)

    def __post_init__(self) -> None:
        config = LogConfig(retention_ms=-1, segment_bytes=4096)
        fencing = FakeFencing(epochs={2: 7})
        self.led = Led(LogFlush.OS, self.replicas, fencing, OneLog(config))
        self.led.lead(EPOCH, isr=self.replicas)

    def store(self, *records: tuple[bytes | None, bytes | None]) -> None:
        batch = build_batch([Record(0, NOW_MS, key, value) for key, value in records])
        self.led.partition.append_state(batch, read_header(batch), NOW_MS)

    def append_in_transaction(self, producer_id: int, key: bytes) -> None:
        batch = in_transaction(build_batch([Record(0, NOW_MS, key, b"")]), producer_id, 0)
        self.led.partition.append_for_coordinator(batch, read_header(batch), NOW_MS)

    def mark(self, producer_id: int, kind: MarkerType) -> None:
        batch = build_marker(EndMarker(kind, 0), producer_id, 0, NOW_MS)
        self.led.partition.append_for_coordinator(batch, read_header(batch), NOW_MS)

    def apply(self, key: bytes, value: bytes | None) -> str | None:
        self.applied.append((key, value))
        return "no such key" if key == b"bad" else None

    async def load(self) -> int:
        replayed = ReplayReceiver(self.apply, self.apply_in_transaction, self.end_transaction)
        return await load(Leadership(self.led.partition, EPOCH), replayed)

    def apply_in_transaction(self, producer_id: int, key: bytes, _value: bytes | None) -> None:
        self.in_transactions.append((producer_id, key))

    def end_transaction(self, producer_id: int, is_commit: bool) -> None:
        self.in_transactions.append((producer_id, is_commit))


async def test_every_record_is_applied_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """Over many segments and slices; a slice is smaller than a batch here, and one is empty of records."""
    monkeypatch.setattr(loader, "SLICE_BYTES", 100)
    one = Loading()
    records = [(f"key {n}".encode(), None if n % 7 == 0 else bytes(n % 300)) for n in range(200)]
    for n in range(0, 200, 4):
        one.store(*records[n : n + 4])
    assert one.led.one.log.segment_count > 3
    assert await one.load() == 200
    assert one.applied == records


async def test_an_empty_log_is_loaded_at_once() -> None:
    assert await Loading().load() == 0


async def test_records_without_a_key_or_that_cannot_be_applied_are_skipped(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Each with a warning that names its offset."""
    one = Loading()
    one.store((b"a", b"1"), (None, b"2"), (b"bad", b"3"))
    one.store((b"b", b"5"))
    assert await one.load() == 4
    assert one.applied == [(b"a", b"1"), (b"bad", b"3"), (b"b", b"5")]
    assert [record.getMessage() for record in caplog.records] == [
        "orders-0: the record at offset 1 is skipped: it has no key",
        "orders-0: the record at offset 2 is skipped: no such key",
    ]


async def test_records_of_transactions_are_told_apart() -> None:
    """They go to another receiver, with their producer, and so do the markers; a state without one skips both."""
    one = Loading()
    one.store((b"a", b"1"))
    one.append_in_transaction(7, b"b")
    one.append_in_transaction(8, b"c")
    one.mark(8, MarkerType.COMMIT)
    one.mark(7, MarkerType.ABORT)
    assert await one.load() == 3
    assert one.applied == [(b"a", b"1")]
    assert one.in_transactions == [(7, b"b"), (8, b"c"), (8, True), (7, False)]
    leadership = Leadership(one.led.partition, EPOCH)
    assert await load(leadership, ReplayReceiver(one.apply)) == 1


async def test_loading_ends_when_the_high_watermark_has_passed_what_was_loaded() -> None:
    """H7: until then another leader may begin without it."""
    one = Loading(replicas=(1, 2))
    one.store((b"a", b"1"))
    loading = asyncio.ensure_future(one.load())
    await until(lambda: one.applied)
    for _ in range(5):
        await asyncio.sleep(0)
    assert not loading.done()
    one.led.partition.note_fetch(2, 7, 1)
    assert await loading == 1


async def test_loading_outlasts_doubts_about_the_lead() -> None:
    """The proof returns in the same leader epoch, so no one would begin to load again."""
    one = Loading(replicas=(1, 2))
    one.store((b"a", b"1"))
    loading = asyncio.ensure_future(one.load())
    for _ in range(2):
        await until(lambda: one.led.partition.waiters.commit.heap)
        one.led.partition.waiters.fail(KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER))
    await until(lambda: loading.done() or one.led.partition.waiters.commit.heap)
    one.led.partition.note_fetch(2, 7, 1)
    assert await loading == 1


@pytest.mark.parametrize("while_waiting", [False, True])
async def test_a_lost_lead_ends_loading(*, while_waiting: bool) -> None:
    """At the next slice, or at once if only the high watermark is missing."""
    one = Loading(replicas=(1, 2))
    one.store((b"a", b"1"))
    loading = asyncio.ensure_future(one.load())
    await asyncio.sleep(0)
    await until(lambda: not while_waiting or one.led.partition.waiters.commit.heap)
    one.led.lead(EPOCH + 2, isr=(1, 2))  # another broker may have led in between
    with pytest.raises(KafkaError) as failed:
        await loading
    assert failed.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER


async def test_damage_ends_loading(monkeypatch: pytest.MonkeyPatch) -> None:
    """Half of the groups would be worse than none: the error names the offset."""
    one = Loading()
    one.store((b"a", b"1"))
    one.store((b"b", b"2"))
    read = one.led.one.log.read

    def read_damaged(offset: int, bytes_max: int, end_offset: int) -> bytes:
        data = bytearray(read(offset, bytes_max, end_offset))
        data[-1] ^= 1
        return bytes(data)

    monkeypatch.setattr(one.led.one.log, "read", read_damaged)
    with pytest.raises(DecodeError, match="the CRC of the batch at offset 1 is wrong"):
        await one.load()


async def test_a_record_that_cannot_be_read_ends_loading(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names its offset: what it replaces is out of date."""
    one = Loading()
    one.store((b"a", b"1"), (b"newer", b"2"))

    def apply(key: bytes, value: bytes | None) -> str | None:
        if key == b"newer":
            raise DecodeError("type 8 is of version 3")
        return None

    monkeypatch.setattr(one, "apply", apply)
    with pytest.raises(DecodeError, match=r"^the record at offset 1: type 8 is of version 3$"):
        await one.load()
