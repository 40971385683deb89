"""Fetch sessions (KIP-227) over a real socket: their life, and what an answer leaves out."""

from __future__ import annotations

import asyncio
import datetime
import uuid
from typing import Any

import pytest

from tests.broker.handlers.test_fetch import produce
from tests.support.in_process import Running, flushed
from tests.support.raw_client import RawConnection, create_topic, nested, topic_id
from tests.support.session_client import INT32_MAX, NOTHING, VERSION, Rows, ask, found, send

LONG_MS = 60_000
"""Far longer than a test takes: a wait of this length ends by an event."""


def codes(response: Any) -> dict[int, int]:
    return {index: row[0] for (_, index), row in found(response).items()}


@pytest.fixture
async def ready(kafka: RawConnection) -> RawConnection:
    """A topic `t` with ten records in each of its three partitions."""
    await create_topic(kafka, "t", 3)
    for index in range(3):
        await produce(kafka, index, *[b"x"] * 10)
    return kafka


AT_END = {"t": [(0, 10), (1, 10), (2, 10)]}


async def opened(kafka: RawConnection, rows: Rows = AT_END, **options: Any) -> int:
    response = await ask(kafka, (0, 0), rows, **options)
    assert response.error_code == 0
    assert response.session_id > 0
    return int(response.session_id)


async def delete_records(kafka: RawConnection, index: int, offset: int) -> None:
    topic = nested("delete_records", 2, "DeleteRecordsTopic")
    partition = nested("delete_records", 2, "DeleteRecordsPartition")
    await kafka.call(
        "delete_records",
        2,
        topics=(topic(name="t", partitions=(partition(partition_index=index, offset=offset),)),),
        timeout=datetime.timedelta(seconds=10),
    )


# --- the life of a session ---


async def test_a_history_of_a_session(ready: RawConnection) -> None:
    """Rows appear when something is to be said of them, and only then."""
    kafka = ready
    response = await ask(kafka, (0, 0), AT_END)
    assert codes(response) == {0: 0, 1: 0, 2: 0}
    s = response.session_id
    response = await ask(kafka, (s, 1))
    assert (response.error_code, response.session_id, response.responses) == (0, s, ())
    await produce(kafka, 1, b"new")
    for epoch in (2, 3):  # not named at its new offset, it is answered with the same again
        assert found(await ask(kafka, (s, epoch))) == {("t", 1): (0, 1, 11, 0)}
    assert found(await ask(kafka, (s, 4), {"t": [(1, 11)]})) == {}
    await delete_records(kafka, 0, 5)
    assert found(await ask(kafka, (s, 5))) == {("t", 0): (0, 0, 10, 5)}
    response = await ask(kafka, (s, 5))
    assert (response.error_code, response.session_id) == (71, 0)
    response = await ask(kafka, (s, 6), {"t": [(2, 99)]}, max_wait_ms=LONG_MS)
    assert found(response) == {("t", 2): (1, 0, -1, -1)}
    assert codes(await ask(kafka, (s, 7), max_wait_ms=LONG_MS)) == {2: 1}
    assert found(await ask(kafka, (s, 8), {"t": [(2, 10)]})) == {("t", 2): (0, 0, 10, 0)}
    await produce(kafka, 0, b"new")
    assert found(await ask(kafka, (s, 9), forget={"t": [0, 1]})) == {}
    response = await ask(kafka, (s, 10), forget={"t": [2]})
    assert (response.error_code, response.session_id, response.responses) == (0, 0, ())
    assert (await ask(kafka, (s, 11))).error_code == 70


async def test_the_bytes_of_an_answer_go_round(ready: RawConnection) -> None:
    """A row with records is the last one next time."""
    kafka = ready
    s = await opened(kafka, {"t": [(0, 0), (1, 0), (2, 0)]}, max_bytes=1)
    named: dict[int, int] = {0: 1}
    rows: Rows = {"t": [(0, 1)]}
    turns = []
    for epoch in range(1, 10):
        response = await ask(kafka, (s, epoch), rows, max_bytes=1)
        ((key, row),) = [(key, row) for key, row in found(response).items() if row[1]]
        assert row[1] == 1
        index = key[1]
        turns.append(index)
        named[index] = named.get(index, 0) + 1
        rows = {"t": [(index, named[index])]}
    assert turns == [0, 1, 2] * 3


@pytest.mark.parametrize("epoch", [-1, 0])
async def test_a_full_request_ends_the_session_that_it_names(
    ready: RawConnection, epoch: int
) -> None:
    """With epoch 0 another follows; with -1 none. An unknown one is no error."""
    s = await opened(ready)
    response = await ask(ready, (s, epoch), AT_END)
    assert (response.error_code, len(found(response))) == (0, 3)
    assert (response.session_id == 0) == (epoch == -1)
    assert (await ask(ready, (s, 1))).error_code == 70
    response = await ask(ready, (s, epoch), AT_END)
    assert (response.error_code, response.session_id == 0) == (0, epoch == -1)


async def test_what_cannot_continue_a_session_leaves_it_alone(ready: RawConnection) -> None:
    """70 before 71 before 106; then the session goes on."""
    kafka = ready
    s = await opened(kafka)
    by_id = {uuid.UUID(int=5): [(0, 1)]}
    refused = [((0, 1), 70), ((s ^ 1, 1), 70), ((INT32_MAX, 5), 70), ((s, 2), 71), ((s, -2), 71)]
    for session, code in refused:
        for version, rows in ((12, {"t": [(0, 1)]}), (13, by_id)):
            response = await ask(kafka, session, rows, version=version)
            assert (response.error_code, response.session_id) == (code, 0)
            assert response.responses == ()
    response = await ask(kafka, (s, 1), by_id, version=13)
    assert (response.error_code, response.session_id) == (106, 0)
    assert found(await ask(kafka, (s, 1))) == {}
    ids = await opened(kafka, {await topic_id(kafka, "t"): [(0, 10)]}, version=13)
    response = await ask(kafka, (ids, 1), {"t": [(0, 1)]}, version=12)
    assert (response.error_code, response.session_id) == (106, 0)
    assert (await ask(kafka, (ids, 1), version=13)).session_id == ids


async def test_a_session_forgets_after_it_has_added(ready: RawConnection) -> None:
    """A row named and forgotten in one request is not in it; one that it never had may be forgotten."""
    s = await opened(ready, {"t": [(0, 10)]})
    response = await ask(ready, (s, 1), {"t": [(1, 0)]}, {"t": [1, 7], "u": [0]})
    assert (found(response), response.session_id) == ({}, s)
    response = await ask(ready, (s, 2), {"t": [(2, 0)]})
    assert found(response) == {("t", 2): (0, 10, 10, 0)}


async def test_a_session_without_rows_is_opened_and_ends_with_its_next_request(
    ready: RawConnection,
) -> None:
    """As in Kafka."""
    s = await opened(ready, {})
    response = await ask(ready, (s, 1), max_wait_ms=LONG_MS)
    assert (response.error_code, response.session_id) == (0, 0)


async def test_the_epoch_after_the_largest_is_one(running: Running, ready: RawConnection) -> None:
    """0 and -1 are taken."""
    s = await opened(ready)
    session = running.broker.services.fetch.sessions.find(s)
    assert session is not None
    session.epoch = INT32_MAX
    for epoch in (INT32_MAX, 1, 2):
        assert (await ask(ready, (s, epoch))).session_id == s


async def test_any_connection_continues_a_session(running: Running, ready: RawConnection) -> None:
    """It outlives the one that opened it."""
    other = await RawConnection.open(running.kafka_address)
    s = await opened(other)
    await other.close()
    assert (await ask(ready, (s, 1))).session_id == s


# --- waits ---


async def test_a_wait_ends_with_records(running: Running, ready: RawConnection) -> None:
    """The records of any row, whether it was looked at or not."""
    writer = await RawConnection.open(running.kafka_address)
    s = await opened(ready)
    rows: Rows = NOTHING
    for epoch in range(1, 7):
        index = epoch % 3
        send(ready, (s, epoch), rows, max_wait_ms=LONG_MS)
        await produce(writer, index, b"new")
        (((_, answered), row),) = found(await ready.receive_response("fetch", VERSION)).items()
        assert (answered, row[1]) == (index, 1)
        rows = {"t": [(index, row[2])]}
    await writer.close()


async def test_a_wait_ends_without_news(ready: RawConnection) -> None:
    """After `max_wait_ms` the answer has no rows."""
    s = await opened(ready)
    response = await ask(ready, (s, 1), max_wait_ms=50)
    assert (response.error_code, response.session_id, response.responses) == (0, s, ())


async def test_a_log_start_alone_ends_no_wait(running: Running, ready: RawConnection) -> None:
    """It is answered with what does."""
    writer = await RawConnection.open(running.kafka_address)
    s = await opened(ready)
    send(ready, (s, 1), max_wait_ms=LONG_MS)
    await delete_records(writer, 0, 5)
    await produce(writer, 1, b"new")
    response = await ready.receive_response("fetch", VERSION)
    assert found(response) == {("t", 0): (0, 0, 10, 5), ("t", 1): (0, 1, 11, 0)}
    await writer.close()


async def test_retention_is_news(running: Running, ready: RawConnection) -> None:
    """The log start that it moves is in the next answer; the records are older than a week."""
    s = await opened(ready)
    assert found(await ask(ready, (s, 1))) == {}
    partition = running.broker.partitions["t", 1]
    while partition.log.log_start_offset == 0:
        await running.broker.housekeeping.round()
        await flushed(running.broker)
    answered = found(await ask(ready, (s, 2)))
    assert answered["t", 1] == (0, 0, 10, 10)


async def test_a_request_that_is_overtaken_is_refused(
    running: Running, ready: RawConnection
) -> None:
    """By one of another connection; it carries the session's id, which goes on."""
    other = await RawConnection.open(running.kafka_address)
    s = await opened(ready)
    session = running.broker.services.fetch.sessions.find(s)
    assert session is not None
    send(ready, (s, 1), max_wait_ms=LONG_MS)
    async with asyncio.timeout(30):
        while session.epoch != 2:  # noqa: ASYNC110 - the broker has read it
            await asyncio.sleep(0)
    assert (await ask(other, (s, 2))).session_id == s
    await produce(other, 0, b"ends the wait")
    response = await ready.receive_response("fetch", VERSION)
    assert (response.error_code, response.session_id, response.responses) == (71, s, ())
    assert (await ask(other, (s, 3))).error_code == 0
    await other.close()


async def test_requests_of_one_connection_do_not_overtake_each_other(ready: RawConnection) -> None:
    """Kafka reads the next one when the one before is answered."""
    s = await opened(ready)
    for epoch in (1, 2, 3):
        send(ready, (s, epoch), max_wait_ms=50)
    for _ in range(3):
        response = await ready.receive_response("fetch", VERSION)
        assert (response.error_code, response.session_id) == (0, s)


async def test_rows_that_cannot_be_read_end_no_wait_of_others(
    running: Running, ready: RawConnection
) -> None:
    """They are in every answer; alone, they are answered at once."""
    writer = await RawConnection.open(running.kafka_address)
    s = await opened(ready, {"u": [(0, 0)], "t": [(0, 10), (7, 0)]})
    send(ready, (s, 1), max_wait_ms=LONG_MS)
    await produce(writer, 0, b"new")
    response = await ready.receive_response("fetch", VERSION)
    assert {key: row[:2] for key, row in found(response).items()} == {
        ("u", 0): (3, 0),
        ("t", 7): (3, 0),
        ("t", 0): (0, 1),
    }
    response = await ask(ready, (s, 2), forget={"t": [0]}, max_wait_ms=LONG_MS)
    assert len(found(response)) == 2
    await writer.close()


async def test_a_wait_for_much_counts_what_idle_rows_get(
    running: Running, ready: RawConnection
) -> None:
    """It ends when enough was appended, over all rows."""
    writer = await RawConnection.open(running.kafka_address)
    s = await opened(ready)
    size = await produce(writer, 0, b"new")
    send(ready, (s, 1), max_wait_ms=LONG_MS, min_bytes=3 * size)
    await produce(writer, 1, b"new")
    await produce(writer, 2, b"new")
    response = await ready.receive_response("fetch", VERSION)
    assert {key[1]: row[1] for key, row in found(response).items()} == {0: 1, 1: 1, 2: 1}
    await writer.close()


async def test_a_lost_leadership_ends_a_wait(running: Running, ready: RawConnection) -> None:
    """The row has the error at once, in each answer until it is forgotten; the others go on."""
    s = await opened(ready)
    assert found(await ask(ready, (s, 1))) == {}
    send(ready, (s, 2), max_wait_ms=LONG_MS)
    session = running.broker.services.fetch.sessions.find(s)
    assert session is not None
    async with asyncio.timeout(30):
        while session.poll is None:  # noqa: ASYNC110 - the broker waits
            await asyncio.sleep(0)
    running.broker.partitions["t", 1].resign()
    assert codes(await ready.receive_response("fetch", VERSION)) == {1: 6}
    assert codes(await ask(ready, (s, 3), max_wait_ms=LONG_MS)) == {1: 6}
    assert found(await ask(ready, (s, 4), forget={"t": [1]}, max_wait_ms=50)) == {}


# --- topics that come and go ---


async def delete_topic(kafka: RawConnection, name: str) -> None:
    await kafka.call(
        "delete_topics", 5, topic_names=(name,), timeout=datetime.timedelta(seconds=30)
    )


async def test_a_name_goes_on_with_a_topic_made_anew(ready: RawConnection) -> None:
    """Silently, from the old offset; meanwhile it is unknown."""
    kafka = ready
    s = await opened(kafka)
    await delete_topic(kafka, "t")
    assert codes(await ask(kafka, (s, 1))) == {0: 3, 1: 3, 2: 3}
    await create_topic(kafka, "t", 2)
    assert codes(await ask(kafka, (s, 2))) == {0: 1, 1: 1, 2: 3}
    response = await ask(kafka, (s, 3), {"t": [(0, 0)]}, {"t": [1, 2]})
    assert found(response) == {("t", 0): (0, 0, 0, 0)}
    await produce(kafka, 0, b"new")
    assert found(await ask(kafka, (s, 4))) == {("t", 0): (0, 1, 1, 0)}


async def test_an_id_stands_for_one_topic(ready: RawConnection) -> None:
    """Never known: 100. Deleted: 3. Its name given to another: 103, for as long as the row stays."""
    kafka = ready
    known, unknown = await topic_id(kafka, "t"), uuid.UUID(int=9)
    s = await opened(kafka, {unknown: [(0, 0)], known: [(0, 10)]}, version=13)
    idle = await opened(kafka, {known: [(0, 10)]}, version=13)
    assert found(await ask(kafka, (s, 1), version=13)) == {(unknown, 0): (100, 0, -1, -1)}
    await delete_topic(kafka, "t")
    assert [row[0] for row in found(await ask(kafka, (s, 2), version=13)).values()] == [3, 100]
    assert [row[0] for row in found(await ask(kafka, (idle, 1), version=13)).values()] == [3]
    await create_topic(kafka, "t", 1)
    assert [row[0] for row in found(await ask(kafka, (s, 3), version=13)).values()] == [103, 100]
    anew = await topic_id(kafka, "t")
    response = await ask(kafka, (s, 4), {anew: [(0, 0)]}, {known: [0]}, version=13)
    assert [row[0] for row in found(response).values()] == [100, 0]


# --- the work ---


async def test_the_work_of_a_request_does_not_depend_on_idle_rows(
    running: Running, kafka: RawConnection
) -> None:
    """Rows looked at, for one record at a time: the same beside 0 and 3,000 idle partitions."""
    await create_topic(kafka, "t", 1)
    await create_topic(kafka, "idle", 3000)
    metrics, looks = running.broker.metrics, []
    offset = 0
    for idle in (0, 3000):
        rows = {"t": [(0, offset)], "idle": [(index, 0) for index in range(idle)]}
        s = await opened(kafka, rows)
        epoch = 1
        assert found(await ask(kafka, (s, epoch))) == {}
        before = metrics.fetch_rows_read_total
        for _ in range(5):
            await produce(kafka, 0, b"new")
            response = await ask(kafka, (s, epoch + 1))
            ((_, (code, batches, offset, _)),) = found(response).items()
            assert (code, batches) == (0, 1)
            assert found(await ask(kafka, (s, epoch + 2), {"t": [(0, offset)]})) == {}
            assert found(await ask(kafka, (s, epoch + 3), max_wait_ms=1)) == {}
            epoch += 3
        looks.append(metrics.fetch_rows_read_total - before)
    assert looks[0] == looks[1] <= 3 * 5


async def test_each_row_that_is_not_marked_waits_with_its_partition(
    running: Running, ready: RawConnection
) -> None:
    """And nothing waits for a session that has ended."""
    partitions = running.broker.partitions
    s = await opened(ready)
    await ask(ready, (s, 1))
    session = running.broker.services.fetch.sessions.find(s)
    assert session is not None
    assert not session.marked
    assert [len(partitions["t", index].waiters.data) for index in range(3)] == [1, 1, 1]
    await ask(ready, (s, 2), forget={"t": [1]})
    assert [len(partitions["t", index].waiters.data) for index in range(3)] == [1, 0, 1]
    await ask(ready, (s, -1))
    assert [len(partitions["t", index].waiters.data) for index in range(3)] == [0, 0, 0]
    metrics = running.broker.metrics
    assert (metrics.fetch_sessions, metrics.fetch_session_rows) == (0, 0)


async def test_many_rows_are_read_in_turns(
    running: Running, ready: RawConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A record that reaches a row after it was read, but before the last one is, ends the wait."""
    for where in (
        "echoless.broker.records.fetch",
        "echoless.broker.records.marked_fetch",
        "echoless.broker.handlers.session_requests",
        "echoless.broker.network.turns",
    ):
        monkeypatch.setattr(f"{where}.ROWS_PER_TURN", 1)
    s = await opened(ready)
    writer = await RawConnection.open(running.kafka_address)
    for epoch in range(1, 6):
        rows = {"t": [(index, 9 + epoch) for index in range(3)]}
        send(ready, (s, epoch), rows, max_wait_ms=LONG_MS, min_bytes=100_000)
        await asyncio.gather(*(produce(writer, index, bytes(50_000)) for index in (0,)))
        await produce(writer, 1, bytes(50_000))
        await produce(writer, 2, b"")
        response = await ready.receive_response("fetch", VERSION)
        assert {key[1]: row[1] for key, row in found(response).items()}.keys() >= {0, 1}
    await writer.close()
