"""Compacted topics of a whole broker: what may be produced, what the cleaner leaves, what a restart knows."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from echoless.broker.config.internal_topics import CONSUMER_OFFSETS
from echoless.broker.partitions.partition import Partition
from echoless.broker.threads import DISK
from echoless.protocol.errors import ErrorCode
from echoless.protocol.record_batch import (
    DELETE_HORIZON_BIT,
    HEADER_SIZE,
    BatchHeader,
    Codec,
    read_header,
    seal_batch,
    walk,
)
from echoless.protocol.records import iterate_records
from echoless.storage.compaction.swap import Cleaned, PendingSwap
from tests.broker.handlers.one_group import commit, committed, created
from tests.storage.compaction.keyed_log import Pair, keyed_batch
from tests.support.in_process import Running, flushed, in_process
from tests.support.raw_client import RawConnection, create_topic, nested
from tests.support.raw_produce import PartitionData

pytestmark = pytest.mark.slow

COMPACT = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0", "segment.bytes": "2000"}


def pairs(*keys: int) -> list[Pair]:
    return [(b"%d" % key, b"value") for key in keys]


async def produced(kafka: RawConnection, data: bytes, topic: str = "t") -> tuple[int, int]:
    """The error and the base offset."""
    (answer,) = await kafka.produce(9, -1, [PartitionData(topic, 0, data)])
    return answer.error, answer.base_offset


async def cleaned(running: Running, topic: str) -> int:
    """Closes and flushes the active segments, has the offsets written, then cleans; returns the passes."""
    broker = running.broker
    for key, partition in broker.replicas.held.items():
        if key[0] == topic:
            partition.log.roll()
            partition.mark_dirty()
    await flushed(broker)
    await broker.housekeeping.round()
    return await broker.cleaner.clean_due()


@asynccontextmanager
async def connected(running: Running) -> AsyncIterator[RawConnection]:
    connection = await RawConnection.open(running.kafka_address)
    try:
        yield connection
    finally:
        await connection.close()


def held(running: Running, topic: str = "t") -> Partition:
    return running.broker.replicas.held[topic, 0]


def stored(running: Running, topic: str = "t") -> list[tuple[int, bytes | None]]:
    """Offset and key of each record of a partition."""
    log, found = held(running, topic).log, []
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        data = log.read(offset, 1, log.log_end_offset)
        found += [(record.offset, record.key) for record in iterate_records(data)]
        offset = read_header(data).next_offset
    return found


async def test_a_record_without_a_key_is_refused_whatever_its_sequence(
    kafka: RawConnection,
) -> None:
    """87 with the index of each such record and Kafka's message; nothing of the batch is stored."""
    await create_topic(kafka, "t", 1, COMPACT)
    assert await produced(kafka, keyed_batch(pairs(1), producer_id=7)) == (ErrorCode.NONE, 0)
    for codec in (Codec.NONE, Codec.ZSTD):
        batch = keyed_batch(
            [*pairs(1), (None, b"x"), (None, b"y")], producer_id=7, sequence=1, codec=codec
        )
        partition = nested("produce", 9, "PartitionProduceData")(index=0, records=batch)
        topic = nested("produce", 9, "TopicProduceData")(name="t", partition_data=(partition,))
        response = await kafka.call(
            "produce", 9, transactional_id=None, acks=-1, timeout=_seconds(5), topic_data=(topic,)
        )
        row = response.responses[0].partition_responses[0]
        message = "Compacted topic cannot accept message without key in topic partition t-0."
        assert (row.error_code, row.error_message) == (ErrorCode.INVALID_RECORD, message)
        assert [(one.batch_index, one.batch_index_error_message) for one in row.record_errors] == [
            (1, message),
            (2, message),
        ]
    following = keyed_batch(pairs(2), producer_id=7, sequence=1)
    assert await produced(kafka, following) == (ErrorCode.NONE, 1)


async def test_a_large_batch_is_searched_for_keys_in_the_thread(kafka: RawConnection) -> None:
    """The last of many records is found, too."""
    await create_topic(kafka, "t", 1, COMPACT | {"segment.bytes": "10MiB"})
    many: list[Pair] = pairs(*range(20_000))
    assert (await produced(kafka, keyed_batch(many)))[0] == ErrorCode.NONE
    wrong = keyed_batch([*many, (None, b"x")])
    assert (await produced(kafka, wrong))[0] == ErrorCode.INVALID_RECORD


async def test_compaction_changes_no_answer_to_a_producer(tmp_path: Path) -> None:
    """Repeats of cleaned batches get their old offsets, before and after a restart."""
    batches = [
        keyed_batch(pairs(n % 3, n % 2), producer_id=n % 2, sequence=n // 2 * 2) for n in range(60)
    ]
    async with in_process(tmp_path) as running:
        async with connected(running) as kafka:
            await create_topic(kafka, "t", 1, COMPACT)
            for number, batch in enumerate(batches):
                assert await produced(kafka, batch) == (ErrorCode.NONE, 2 * number)
            before = held(running).log.size_bytes
            assert await cleaned(running, "t") == 1
            assert held(running).log.size_bytes < before / 3
            assert {key for _, key in stored(running)} == {b"0", b"1", b"2"}
            assert await cleaned(running, "t") == 0, "nothing is dirty"
            await check_repeats(kafka, batches)
            assert running.broker.metrics.compaction_passes_total == 1
            assert running.broker.metrics.compaction_removed_bytes_total > 0
        records = stored(running)
    async with in_process(tmp_path) as running, connected(running) as kafka:
        assert stored(running) == records
        assert held(running).log.compaction.cleaned_to == 120
        await check_repeats(kafka, batches)


async def check_repeats(kafka: RawConnection, batches: list[bytes]) -> None:
    """The window has five batches of each producer; older repeats are 46."""
    window = range(len(batches) - 10, len(batches))
    for number, batch in enumerate(batches):
        expected = (
            (ErrorCode.NONE, 2 * number)
            if number in window
            else (ErrorCode.DUPLICATE_SEQUENCE_NUMBER, -1)
        )
        assert await produced(kafka, batch) == expected


async def test_an_answer_begins_at_a_batch_that_has_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From every offset, through empty batches of many producers and segments, in as many steps as it takes."""
    monkeypatch.setattr("echoless.storage.empty_batches.BATCHES_MAX", 3)
    monkeypatch.setattr("echoless.storage.empty_batches.SEGMENTS_MAX", 2)
    async with in_process(tmp_path) as running, connected(running) as kafka:
        await create_topic(kafka, "t", 2, COMPACT | {"delete.retention.ms": "0"})
        for number in range(60):
            tombstone = (b"2", None) if number > 55 else (b"%d" % (number % 20 // 19), b"value")
            batch = keyed_batch([tombstone], producer_id=number)
            assert (await produced(kafka, batch))[0] == ErrorCode.NONE
            held(running).log.roll()
        expected = [39, 55]
        for left in ([39, 55, 59], expected):
            await cleaned(running, "t")
            assert [offset for offset, _ in stored(running)] == left
        monkeypatch.setattr("echoless.storage.segment.LOOK_UP_BYTES", 61)
        for offset in range(60):
            for bytes_max in (0, 100, 1 << 20):
                headers = await fetched(kafka, offset, bytes_max)
                following = [end for end in expected if end >= offset] or [59]
                assert headers[0].last_offset == following[0]
                assert bool(headers[0].record_count) == (following != [59])
                assert bytes_max or len(headers) == 1
                assert len(headers) == 1 or all(header.record_count for header in headers)
        assert not await fetched(kafka, 60, 0)


async def test_an_answer_goes_on_behind_a_batch_whose_records_may_come_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """kafka-go asks for the offset behind the last record, which a sparse batch holds: the next record is there, too."""
    monkeypatch.setattr("echoless.storage.empty_batches.BATCHES_MAX", 3)
    async with in_process(tmp_path) as running, connected(running) as kafka:
        await create_topic(kafka, "t", 2, COMPACT)
        for keys in ([1, 9], [2, 9], *([9] for _ in range(20)), [3, 9], [9]):
            batch = keyed_batch(pairs(*keys), producer_id=keys[0] + 100 * len(stored(running)))
            assert (await produced(kafka, batch))[0] == ErrorCode.NONE
            held(running).log.roll()
        await cleaned(running, "t")
        left = [offset for offset, _ in stored(running)]
        assert left == [0, 2, 24, 26]
        for offset in range(left[-1] + 1):
            for bytes_max in (0, 100, 1 << 20):
                headers = await fetched(kafka, offset, bytes_max)
                assert all(header.record_count for header in headers)
                reached = {
                    record
                    for h in headers
                    for record in left
                    if h.base_offset <= record <= h.last_offset
                }
                assert max(reached) >= offset, (offset, bytes_max)
                assert bytes_max or len(headers) <= 2


async def fetched(kafka: RawConnection, offset: int, bytes_max: int) -> list[BatchHeader]:
    """The batches that a client gets of t-0, which comes second, and of t-1, which has none."""
    partition = nested("fetch", 11, "FetchPartition")
    rows = (
        partition(partition=1, fetch_offset=0, partition_max_bytes=bytes_max),
        partition(partition=0, fetch_offset=offset, partition_max_bytes=bytes_max),
    )
    response = await kafka.call(
        "fetch",
        11,
        max_wait=_seconds(0),
        min_bytes=0,
        topics=(nested("fetch", 11, "FetchTopic")(topic="t", partitions=rows),),
        forgotten_topics_data=(),
    )
    first, second = response.responses[0].partitions
    assert (first.error_code, second.error_code, first.records or b"") == (0, 0, b"")
    return [header for _, header in walk(second.records or b"")]


async def test_committed_offsets_are_the_same_after_cleaning(tmp_path: Path) -> None:
    """A later coordinator reads from the cleaned topic what was committed last, and what was never changed."""
    async with (
        in_process(tmp_path, offsets_topic_num_partitions=1) as running,
        connected(running) as kafka,
    ):
        await create_topic(kafka, "t", 3)
        await created(kafka)
        await commit(kafka, {("t", 2): 7}, metadata="once")
        for offset in range(50):
            await commit(kafka, {("t", 0): offset, ("t", 1): 2 * offset})
        before = await committed(kafka, None)
        assert len(before) == 3
        size = held(running, CONSUMER_OFFSETS).log.size_bytes
        assert await cleaned(running, CONSUMER_OFFSETS) == 1
        assert held(running, CONSUMER_OFFSETS).log.size_bytes < size / 10
        assert await committed(kafka, None) == before
    async with (
        in_process(tmp_path, offsets_topic_num_partitions=1) as running,
        connected(running) as kafka,
    ):
        await created(kafka)
        assert await committed(kafka, None) == before


async def test_the_topic_of_offsets_is_compacted_and_nothing_else(kafka: RawConnection) -> None:
    """Kafka's settings, whatever the broker's own are."""
    await created(kafka)
    resource = nested("describe_configs", 4, "DescribeConfigsResource")(
        resource_type=2, resource_name=CONSUMER_OFFSETS, configuration_keys=None
    )
    response = await kafka.call(
        "describe_configs",
        4,
        resources=(resource,),
        include_synonyms=False,
        include_documentation=False,
    )
    found = {row.name: row.value for row in response.results[0].configs}
    assert (found["cleanup.policy"], found["compression.type"]) == ("compact", "producer")
    assert (found["retention.ms"], found["segment.bytes"]) == ("-1", "104857600")


async def test_a_log_that_cannot_be_cleaned_is_named_and_tried_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The others are cleaned; the pause doubles; success takes the name off the list."""
    async with in_process(tmp_path) as running, connected(running) as kafka:
        for topic in ("t", "u"):
            await create_topic(kafka, topic, 1, COMPACT)
            for _ in range(30):
                await produced(kafka, keyed_batch(pairs(1, 2)), topic)
        await cleaned_to_disk(running)
        path = tmp_path / "data" / "t-0" / f"{0:020d}.log"
        good = path.read_bytes()
        path.write_bytes(bytes([*good[:80], good[80] ^ 1, *good[81:]]))
        cleaner, uncleanable = running.broker.cleaner, running.broker.logs.uncleanable
        assert await cleaner.clean_due() == 1
        assert [*uncleanable] == [("t", 0)]
        assert "t-0 cannot be compacted" in caplog.text
        assert uncleanable["t", 0].reason.count("damaged at position 0")
        assert await cleaner.clean_due() == 0, "it is not tried again yet"
        uncleanable["t", 0] = uncleanable["t", 0]._replace(retry_s=0.0)
        assert await cleaner.clean_due() == 0
        assert running.broker.metrics.compaction_failures_total == 2
        assert uncleanable["t", 0].delay_s == 120
        path.write_bytes(good)
        uncleanable["t", 0] = uncleanable["t", 0]._replace(retry_s=0.0)
        assert await cleaner.clean_due() == 1
        assert not uncleanable


async def cleaned_to_disk(running: Running) -> None:
    """Does all that `cleaned` does before it cleans."""
    for partition in running.broker.replicas.held.values():
        partition.log.roll()
        partition.mark_dirty()
    await flushed(running.broker)
    await running.broker.housekeeping.round()


class _DiskWithDeletion:
    """The disk's threads; once such a piece of work is done, the topic is deleted before the loop goes on."""

    def __init__(self, is_awaited: Callable[[object, object], bool]) -> None:
        self._is_awaited = is_awaited
        self.delete: Callable[[], Awaitable[None]] | None = None

    async def run(self, work: Callable[[], Any]) -> Any:
        result = await DISK.run(work)
        if self.delete is not None and self._is_awaited(work, result):
            delete, self.delete = self.delete, None
            await delete()
        return result


def _is_swap(work: object, _: object) -> bool:
    return isinstance(getattr(work, "__self__", None), PendingSwap)


@pytest.mark.parametrize(
    "is_awaited",
    [lambda _, result: isinstance(result, Cleaned), lambda _, result: result is None, _is_swap],
    ids=["before the swap", "during the pass", "during the swap"],
)
async def test_a_topic_may_be_deleted_while_it_is_cleaned(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    is_awaited: Callable[[object, object], bool],
) -> None:
    """Files that have gone with their topic are no failure of the disk."""
    disk = _DiskWithDeletion(is_awaited)
    for file in ("cleaner", "cleaner_steps"):
        monkeypatch.setattr(f"echoless.broker.partitions.{file}.DISK", disk)
    monkeypatch.setattr("echoless.storage.compaction.cleaning.PAUSE_BYTES", 1)
    monkeypatch.setattr("echoless.broker.partitions.cleaner_steps._SLICE_S", 0.0)
    monkeypatch.setattr("echoless.broker.partitions.cleaner_steps._BUSY_SLICE_S", 0.0)
    async with in_process(tmp_path) as running, connected(running) as kafka:
        broker = running.broker

        async def delete() -> None:
            topic = broker.registry.topics["u"]
            await kafka.call("delete_topics", 1, topic_names=("u",), timeout=_seconds(5))
            while ("u", 0) in broker.logs.logs:  # noqa: ASYNC110 - no event to wait for
                await asyncio.sleep(0)
            await broker.replicas.until_removed(topic)

        for topic in ("t", "u"):
            await create_topic(kafka, topic, 1, COMPACT)
            for _ in range(30):
                await produced(kafka, keyed_batch(pairs(1, 2)), topic)
        await cleaned_to_disk(running)
        disk.delete = delete
        await broker.cleaner.clean_due()
        await flushed(broker)
        assert disk.delete is None
        assert broker.logs.failure is None
        assert not broker.logs.uncleanable
        assert len(stored(running, "t")) < 10, "the other one is cleaned"


async def test_records_may_be_deleted_while_their_topic_is_cleaned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Segments that have gone with them end the pass, and are no failure; the next one cleans the rest."""
    disk = _DiskWithDeletion(lambda _, result: result is None)
    for file in ("cleaner", "cleaner_steps"):
        monkeypatch.setattr(f"echoless.broker.partitions.{file}.DISK", disk)
    monkeypatch.setattr("echoless.storage.compaction.cleaning.PAUSE_BYTES", 1)
    monkeypatch.setattr("echoless.broker.partitions.cleaner_steps._SLICE_S", 0.0)
    monkeypatch.setattr("echoless.broker.partitions.cleaner_steps._BUSY_SLICE_S", 0.0)
    async with in_process(tmp_path) as running, connected(running) as kafka:
        await create_topic(
            kafka, "t", 1, COMPACT | {"cleanup.policy": "compact,delete", "retention.ms": "-1"}
        )
        for number in range(100):
            await produced(kafka, keyed_batch(pairs(number % 7, 8)))
        await cleaned_to_disk(running)
        log = held(running).log
        assert log.segment_count > 4

        async def delete() -> None:
            log.advance_log_start(100)
            await running.broker.housekeeping.round()
            assert log.first_offset > 0

        disk.delete = delete
        assert await running.broker.cleaner.clean_due() == 0
        assert disk.delete is None
        assert not running.broker.logs.uncleanable
        assert "cannot be compacted" not in caplog.text
        assert await running.broker.cleaner.clean_due() == 1
        assert len(stored(running)) < 20


async def test_a_swap_that_a_cut_cancels_leaves_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The segment that was written goes at once, with a line; the next pass cleans."""
    caplog.set_level("INFO")

    class _Cancelling:
        """The disk's threads; a cut cancels each swap before it begins."""

        async def run(self, work: Callable[[], Any]) -> Any:
            if _is_swap(work, None):
                held(running).log.compaction.end_swap()
            return await DISK.run(work)

    async with in_process(tmp_path) as running, connected(running) as kafka:
        await create_topic(kafka, "t", 1, COMPACT)
        for _ in range(30):
            await produced(kafka, keyed_batch(pairs(1, 2)))
        await cleaned_to_disk(running)
        with monkeypatch.context() as patch:
            patch.setattr("echoless.broker.partitions.cleaner.DISK", _Cancelling())
            assert await running.broker.cleaner.clean_due() == 0
        assert not [*(tmp_path / "data" / "t-0").glob("*.cleaned")]
        assert caplog.text.count(".log.cleaned: the log has changed") == 1
        assert await running.broker.cleaner.clean_due() == 1
        assert len(stored(running)) < 10


@pytest.mark.parametrize(
    ("policy", "code"),
    [("compact", ErrorCode.POLICY_VIOLATION), ("compact,delete", ErrorCode.NONE)],
)
async def test_records_of_a_topic_that_is_only_compacted_are_not_deleted(
    kafka: RawConnection, policy: str, code: ErrorCode
) -> None:
    """DeleteRecords is 44; with `delete` in the policy it works."""
    await create_topic(kafka, "t", 1, COMPACT | {"cleanup.policy": policy})
    await produced(kafka, keyed_batch(pairs(1)))
    row = nested("delete_records", 2, "DeleteRecordsPartition")(partition_index=0, offset=1)
    topic = nested("delete_records", 2, "DeleteRecordsTopic")(name="t", partitions=(row,))
    response = await kafka.call("delete_records", 2, topics=(topic,), timeout=_seconds(5))
    assert response.topics[0].partitions[0].error_code == code


@pytest.mark.parametrize("count", [3, 3000])
async def test_batches_are_stored_as_compression_type_says(
    kafka: RawConnection, running: Running, count: int
) -> None:
    """Compressed anew before the decision, so a repeat is the same bytes again; large ones in a thread."""
    await create_topic(kafka, "t", 1, {"compression.type": "zstd", "compression.zstd.level": "9"})
    plain = keyed_batch(pairs(*range(count)), producer_id=7)
    gzip = keyed_batch(pairs(*range(count)), producer_id=7, sequence=count, codec=Codec.GZIP)
    for offset, batch in ((0, plain), (count, gzip), (0, plain), (count, gzip)):
        assert await produced(kafka, batch) == (ErrorCode.NONE, offset)
    log = held(running).log
    data = log.read(0, 1 << 20, log.log_end_offset)
    assert read_header(data).codec_id == Codec.ZSTD
    assert len(stored(running)) == 2 * count
    assert running.broker.metrics.duplicates_total == 2
    assert running.broker.metrics.divergent_duplicates_total == 0


async def test_a_repeat_is_the_same_when_the_codec_of_the_topic_has_changed(
    kafka: RawConnection, running: Running
) -> None:
    """The stored batch is in the former codec, so its CRC says nothing; other records in the same one are noticed."""
    await create_topic(kafka, "t", 1)
    first = keyed_batch(pairs(*range(30)), producer_id=7)
    assert await produced(kafka, first) == (ErrorCode.NONE, 0)
    api = "incremental_alter_configs"
    change = nested(api, 1, "AlterableConfig")(
        name="compression.type", config_operation=0, value="gzip"
    )
    topic = nested(api, 1, "AlterConfigsResource")(
        resource_type=2, resource_name="t", configs=(change,)
    )
    await kafka.call(api, 1, resources=(topic,), validate_only=False)
    assert await produced(kafka, first) == (ErrorCode.NONE, 0)
    metrics = running.broker.metrics
    assert (metrics.duplicates_total, metrics.divergent_duplicates_total) == (1, 0)
    second = keyed_batch(pairs(*range(30)), producer_id=7, sequence=30)
    other = keyed_batch(pairs(*range(30, 60)), producer_id=7, sequence=30)
    assert await produced(kafka, second) == (ErrorCode.NONE, 30)
    assert await produced(kafka, other) == (ErrorCode.UNKNOWN_PRODUCER_ID, -1)
    assert (metrics.duplicates_total, metrics.reused_sequences_total) == (1, 1)


async def test_no_client_sets_the_time_of_tombstones(kafka: RawConnection) -> None:
    """Kafka stores attribute bit 6, and its cleaner believes that it was its own: the tombstone goes at once."""
    await create_topic(kafka, "t", 1, COMPACT)
    batch = keyed_batch([(b"1", None)], producer_id=7)
    header = read_header(batch)
    marked = seal_batch(
        header._replace(attributes=header.attributes | DELETE_HORIZON_BIT), batch[HEADER_SIZE:]
    )
    assert (await produced(kafka, marked))[0] == ErrorCode.INVALID_RECORD
    assert await produced(kafka, batch) == (ErrorCode.NONE, 0)


async def test_flush_messages_of_one_flushes_before_the_acknowledgement(
    kafka: RawConnection, running: Running
) -> None:
    """As in Kafka: what is acknowledged is on disk, whatever the broker's `log_flush` is."""
    await create_topic(kafka, "t", 1, {"flush.messages": "1"})
    await create_topic(kafka, "u", 1, {"flush.messages": "10"})
    for number in range(3):
        assert await produced(kafka, keyed_batch(pairs(1))) == (ErrorCode.NONE, number)
        assert held(running).log.recovery_point == number + 1
    await produced(kafka, keyed_batch(pairs(*range(9))), "u")
    await produced(kafka, keyed_batch(pairs(1)), "u")
    async with asyncio.timeout(60):
        while held(running, "u").log.recovery_point < 10:
            await DISK.run(lambda: None)


def _seconds(seconds: int) -> Any:
    import datetime

    return datetime.timedelta(seconds=seconds)
