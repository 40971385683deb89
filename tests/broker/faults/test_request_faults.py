"""The effect of each action on a request to the Kafka port, seen by a client and in the log."""

from __future__ import annotations

import asyncio
import contextlib
import struct

import pytest

from echoless.broker.faults.action import DELAY_MS_MAX
from echoless.broker.faults.port import FaultyDispatcher
from echoless.broker.handlers.dispatch import KafkaDispatcher
from tests.broker.faults.lab import TOPIC, Lab, answered, batch, produce, send
from tests.support.raw_client import ConnectionEndedError, RawConnection
from tests.support.raw_produce import decode_produce
from tests.support.session_client import ask, found

PRODUCE = {"api": "produce"}


async def until(condition) -> None:
    """Lets the loop run until the condition holds."""
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110 - the condition is the broker's, not an event
            await asyncio.sleep(0)


@contextlib.asynccontextmanager
async def expecting_silence(connection: RawConnection):
    """No answer has come by the end of the block."""
    receiving = asyncio.ensure_future(connection.receive())
    try:
        yield
        assert not receiving.done()
    finally:
        receiving.cancel()
        await asyncio.gather(receiving, return_exceptions=True)


async def test_a_dropped_request_is_never_processed(lab: Lab, kafka: RawConnection) -> None:
    """Its connection waits for the answer; the resend on another one is the first to be seen."""
    name = lab.add("drop_request", PRODUCE, times=1)
    send(kafka, batch(0))
    await until(lambda: lab.counts(name) == (1, 1))
    other = await lab.connect()
    async with expecting_silence(kafka):
        assert await produce(other, batch(0)) == [0]
    assert lab.verdicts() == [(0, "append")]


async def test_a_dropped_response_was_processed(lab: Lab, kafka: RawConnection) -> None:
    """The resend is a duplicate, answered with the original offset."""
    lab.add("drop_response", PRODUCE, times=1)
    send(kafka, batch(0))
    other = await lab.connect()
    await until(lambda: lab.verdicts() == [(0, "append")])
    async with expecting_silence(kafka):
        (answer,) = await answered(other, batch(0))
    assert (answer.error, answer.base_offset) == (0, 0)
    assert lab.verdicts() == [(0, "append"), (0, "duplicate")]
    assert await lab.stored() == 1


async def test_answers_behind_a_lost_one_wait(lab: Lab, kafka: RawConnection) -> None:
    """They are processed, but a client would take them for the answer that is missing."""
    lab.add("drop_response", {"base_sequence": 1})
    assert await produce(kafka, batch(0)) == [0]
    send(kafka, batch(1))
    send(kafka, batch(2))
    async with expecting_silence(kafka):
        await until(lambda: len(lab.verdicts()) == 3)
    assert [verdict for _, verdict in lab.verdicts()] == ["append"] * 3


async def test_answers_behind_a_lost_one_are_sent_where_the_rule_says_so(
    lab: Lab, kafka: RawConnection
) -> None:
    """For clients that look their requests up by correlation id."""
    lab.add({"type": "drop_request", "later": "send"}, {**PRODUCE, "partition": 0})
    send(kafka, batch(0))
    send(kafka, batch(0, partition=1))
    kafka._received += 1  # the first one never comes
    (answer,) = await kafka.receive_produce(9)
    assert (answer.partition, answer.error) == (1, 0)


async def test_a_delayed_request_keeps_those_behind_it_waiting(
    lab: Lab, kafka: RawConnection
) -> None:
    """A connection is worked on in order, so the second batch is no gap."""
    lab.add({"type": "delay_request", "ms": 50}, PRODUCE, times=1)
    began = asyncio.get_running_loop().time()
    send(kafka, batch(0))
    send(kafka, batch(1))
    assert [(await kafka.receive_produce(9))[0].error for _ in range(2)] == [0, 0]
    assert asyncio.get_running_loop().time() - began >= 0.049
    assert lab.verdicts() == [(0, "append"), (1, "append")]


@pytest.mark.parametrize("frame", [b"\0", struct.pack(">hhih", 97, 0, 1, -1)])
async def test_what_is_no_request_waits_behind_a_delayed_one(
    lab: Lab, kafka: RawConnection, frame: bytes
) -> None:
    """It ends the connection as it always does, and is no bug."""
    lab.add({"type": "delay_request", "ms": 50}, PRODUCE, times=1)
    send(kafka, batch(0))
    kafka.send_bytes(struct.pack(">i", len(frame)) + frame)
    assert [one.error for one in await kafka.receive_produce(9)] == [0]
    with pytest.raises(ConnectionEndedError):
        await kafka.receive()
    assert not lab.broker.metrics.requests_failed_total


async def test_a_delayed_request_comes_also_when_its_client_has_gone(
    lab: Lab, kafka: RawConnection
) -> None:
    """The original arrives after its own retry, and is the duplicate."""
    name = lab.add({"type": "delay_request", "ms": 50}, PRODUCE, times=1)
    send(kafka, batch(0))
    await until(lambda: lab.counts(name) == (1, 1))
    await kafka.close()
    other = await lab.connect()
    assert await produce(other, batch(0)) == [0]
    await until(lambda: len(lab.verdicts()) == 2)
    assert lab.verdicts() == [(0, "append"), (0, "duplicate")]


async def test_a_delayed_response_was_processed_at_once(lab: Lab, kafka: RawConnection) -> None:
    """Only the answer is late: the batch is stored long before it may be answered."""
    lab.add({"type": "delay_response", "ms": DELAY_MS_MAX}, PRODUCE, times=1)
    send(kafka, batch(0))
    async with expecting_silence(kafka):
        await until(lambda: lab.verdicts() == [(0, "append")])


async def test_a_delayed_response_comes_after_its_delay(lab: Lab, kafka: RawConnection) -> None:
    """Not before, and it is the answer."""
    lab.add({"type": "delay_response", "ms": 50}, PRODUCE, times=1)
    began = asyncio.get_running_loop().time()
    assert await produce(kafka, batch(0)) == [0]
    assert asyncio.get_running_loop().time() - began >= 0.049


@pytest.mark.parametrize(
    ("action", "stored"),
    [("close_before", 0), ("close_after", 1), ("close_within", 1)],
)
async def test_closing_the_connection(
    lab: Lab, kafka: RawConnection, action: str, stored: int
) -> None:
    """Before or after processing, or within the answer; the resend is stored once."""
    lab.add(action, PRODUCE, times=1)
    send(kafka, batch(0))
    with pytest.raises(ConnectionEndedError):
        await kafka.receive()
    assert len(lab.verdicts()) == stored
    other = await lab.connect()
    assert await produce(other, batch(0)) == [0]
    assert await lab.stored() == 1


async def test_half_an_answer_is_half_of_it(lab: Lab, kafka: RawConnection) -> None:
    """`close_within` sends some of the answer, not none and not all."""
    whole = len(await whole_answer(lab, kafka))
    lab.add("close_within", PRODUCE, times=1)
    send(kafka, batch(1))
    async with asyncio.timeout(60):
        part = await kafka._reader.read(-1)
    assert 0 < len(part) < whole


async def whole_answer(lab: Lab, kafka: RawConnection) -> bytes:
    send(kafka, batch(0))
    return b"\0\0\0\0\0\0\0\0" + await kafka.receive()


async def test_an_answer_in_pieces_is_the_same_answer(lab: Lab, kafka: RawConnection) -> None:
    """It arrives byte by byte, and the answers after it follow whole."""
    lab.add({"type": "trickle", "bytes": 3, "ms": 1}, PRODUCE, times=1)
    for sequence in range(3):
        send(kafka, batch(sequence))
    answers = [(await kafka.receive_produce(9))[0] for _ in range(3)]
    assert [(one.error, one.base_offset) for one in answers] == [(0, 0), (0, 1), (0, 2)]


async def test_swapped_requests_are_processed_the_other_way_round(
    lab: Lab, kafka: RawConnection
) -> None:
    """The second one is a gap; answers keep the order of their requests."""
    lab.add({"type": "swap", "ms": 10_000}, PRODUCE, times=1)
    send(kafka, batch(0))
    send(kafka, batch(1))
    send(kafka, batch(0, partition=1))
    errors = [(await kafka.receive_produce(9))[0].error for _ in range(3)]
    assert errors == [0, 45, 0]
    assert lab.verdicts()[:2] == [(1, "reject"), (0, "append")]


async def test_a_swap_without_a_second_request_is_a_delay(lab: Lab, kafka: RawConnection) -> None:
    """After its wait the first is processed alone."""
    lab.add({"type": "swap", "ms": 20}, PRODUCE, times=1)
    assert await produce(kafka, batch(0)) == [0]
    assert await produce(kafka, batch(1)) == [0]


async def test_a_swap_puts_no_newer_epoch_first(lab: Lab, kafka: RawConnection) -> None:
    """A producer that raises its epoch counts on the order of its connection: 47 would be final."""
    assert await produce(kafka, batch(0)) == [0]
    lab.add({"type": "swap", "ms": 10_000}, PRODUCE, times=1)
    send(kafka, batch(1))
    send(kafka, batch(0, epoch=1))
    assert [(await kafka.receive_produce(9))[0].error for _ in range(2)] == [0, 0]
    assert lab.verdicts()[1:] == [(1, "append"), (0, "append")]


async def test_a_newer_epoch_of_another_connection_is_put_first(
    lab: Lab, kafka: RawConnection
) -> None:
    """It acts as if a request were still in transit whose client has gone, and sent it again."""
    lab.add({"type": "swap", "ms": 10_000}, PRODUCE, times=1)
    send(kafka, batch(0))
    await until(lab.hits)
    other = await lab.connect()
    assert await produce(other, batch(0, epoch=1)) == [0]
    assert (await kafka.receive_produce(9))[0].error == 47


async def test_a_request_processed_twice_is_stored_once(lab: Lab, kafka: RawConnection) -> None:
    """The first answer is sent."""
    lab.add("twice", PRODUCE, times=1)
    (answer,) = await answered(kafka, batch(0))
    assert (answer.error, answer.base_offset) == (0, 0)
    assert lab.verdicts() == [(0, "append"), (0, "duplicate")]
    assert await produce(kafka, batch(1)) == [0]


async def test_a_frozen_partition_waits_until_the_rule_is_removed(
    lab: Lab, kafka: RawConnection
) -> None:
    """Other partitions continue; held requests are processed in order."""
    name = lab.add("freeze", {"topic": TOPIC, "partition": 0})
    send(kafka, batch(0))
    send(kafka, batch(1))
    other = await lab.connect()
    async with expecting_silence(kafka):
        assert await produce(other, batch(0, partition=1)) == [0]
    lab.broker.faults.remove(name)
    assert [(await kafka.receive_produce(9))[0].error for _ in range(2)] == [0, 0]


async def test_a_frozen_broker_thaws_in_time(lab: Lab, kafka: RawConnection) -> None:
    """Every request waits until the duration is over."""
    duration_ms = 50
    began_ms = round(asyncio.get_running_loop().time() * 1000)  # uvloop counts in milliseconds
    lab.add("freeze", duration_ms=duration_ms)
    await kafka.call("api_versions", 0)
    took_ms = round(asyncio.get_running_loop().time() * 1000) - began_ms
    assert took_ms >= duration_ms - 1


async def test_only_the_matching_partitions_get_the_error(lab: Lab, kafka: RawConnection) -> None:
    """Without processing for these, as ever for the others."""
    match = {**PRODUCE, "topic": TOPIC, "partition": 1}
    lab.add({"type": "error", "code": 6}, match, times=1)
    send(kafka, batch(0), batch(0, partition=1))
    rows = {row.partition: row.error for row in await kafka.receive_produce(9)}
    assert rows == {0: 0, 1: 6}
    assert (await lab.stored(0), await lab.stored(1)) == (1, 0)
    (hit,) = lab.hits()
    assert [(one.partition, one.base_sequence) for one in hit.batches] == [(1, 0)]


async def test_an_error_after_processing(lab: Lab, kafka: RawConnection) -> None:
    """Stored, and answered with the error all the same; the resend is a duplicate."""
    match = {**PRODUCE, "partition": 1}
    lab.add({"type": "error_after", "code": "REQUEST_TIMED_OUT"}, match, times=1)
    rows = await answered(kafka, batch(0), batch(0, partition=1))
    assert {row.partition: (row.error, row.base_offset) for row in rows} == {0: (0, 0), 1: (7, -1)}
    assert await produce(kafka, batch(0, partition=1)) == [0]
    assert await lab.stored(1) == 1


@pytest.mark.parametrize("action", ["error", "error_after"])
async def test_an_error_without_answer_ends_the_connection(
    lab: Lab, kafka: RawConnection, action: str
) -> None:
    """acks=0, as after any other error."""
    lab.add({"type": action, "code": 6}, PRODUCE)
    send(kafka, batch(0), acks=0)
    with pytest.raises(ConnectionEndedError):
        await kafka.receive()
    assert len(lab.verdicts()) == (action == "error_after")


async def test_the_first_rule_that_acts_is_the_only_one(lab: Lab, kafka: RawConnection) -> None:
    """The next rule is asked about what the first one leaves alone."""
    first = lab.add({"type": "error", "code": 6}, PRODUCE, skip=1, times=1)
    second = lab.add({"type": "error", "code": 7}, PRODUCE, times=1)
    assert [await produce(kafka, batch(0)) for _ in range(3)] == [[7], [6], [0]]
    assert (lab.counts(first), lab.counts(second)) == ((2, 1), (1, 1))


async def test_a_rule_touches_nothing_else(lab: Lab, kafka: RawConnection) -> None:
    """Client, version, producer, epoch, sequence and connection: one that differs is enough."""
    others = [
        {"client_id": "somebody"},
        {"api": "produce", "api_version": 8},
        {"producer_id": 1},
        {"producer_epoch": 1},
        {"base_sequence": "1-9"},
        {"connection": 999},
        {"topic": "others"},
        {"api": "fetch"},
    ]
    for match in others:
        lab.add("close_before", match)
    assert await produce(kafka, batch(0)) == [0]
    assert lab.hits() == []
    lab.add("close_before", {"client_id": "raw", "producer_epoch": 0, "base_sequence": "1-9"})
    send(kafka, batch(1))
    with pytest.raises(ConnectionEndedError):
        await kafka.receive()


async def test_rules_about_fetches_see_every_partition(lab: Lab, kafka: RawConnection) -> None:
    """Sessions, whose requests leave partitions out, are declined while there are any; then clients open them again."""
    await produce(kafka, batch(0))
    session = (await ask(kafka, (0, 0), {TOPIC: [(0, 0), (1, 0)]})).session_id
    other = lab.add("close_before", {"api": "metadata"})
    assert (await ask(kafka, (session, 1))).session_id == session
    match = {"api": "fetch", "topic": TOPIC, "partition": 1}
    name = lab.add({"type": "error", "code": 9}, match)
    response = await ask(kafka, (session, 2))
    assert (response.error_code, lab.counts(name)) == (70, (0, 0))
    response = await ask(kafka, (0, 0), {TOPIC: [(0, 1), (1, 0)]})
    assert response.session_id == 0
    assert {key[1]: row[0] for key, row in found(response).items()} == {0: 0, 1: 9}
    lab.broker.faults.remove(name)
    assert (await ask(kafka, (0, 0), {TOPIC: [(0, 1), (1, 0)]})).session_id > 0
    lab.broker.faults.remove(other)


async def test_a_hit_is_told_with_its_batches(lab: Lab, kafka: RawConnection) -> None:
    """Rule, action, API, connection, client and sequences are listed among the decisions."""
    name = lab.add({"type": "error", "code": 7}, PRODUCE)
    await produce(kafka, batch(0))
    (hit,) = lab.hits()
    assert (hit.rule, hit.action, hit.api, hit.client_id) == (name, "error", "produce", "raw")
    assert hit.correlation_id == 1
    ((topic, partition, _, epoch, first, last),) = hit.batches
    assert (topic, partition, epoch, first, last) == (TOPIC, 0, 0, 0, 0)


async def test_a_request_that_is_lost_is_told_whole(lab: Lab, kafka: RawConnection) -> None:
    """One partition matches, and all of the request is lost."""
    lab.add("close_before", {"api": "produce", "partition": 1})
    send(kafka, batch(0), batch(0, partition=1))
    with pytest.raises(ConnectionEndedError):
        await kafka.receive()
    (hit,) = lab.hits()
    assert [one.partition for one in hit.batches] == [0, 1]


async def test_topics_that_are_named_by_id_are_matched_by_name(
    lab: Lab, kafka: RawConnection
) -> None:
    """Produce 13 and Fetch 13 name topics by id."""
    topic = lab.broker.registry.topics[TOPIC]
    match = {"topic": TOPIC, "partition": 0, "api": "produce", "api_version": 13}
    lab.add({"type": "error", "code": 7}, match)
    rows = [batch(0)._replace(topic=topic.topic_id), batch(0, 1)._replace(topic=topic.topic_id)]
    kafka.send_produce(13, -1, rows)
    answers = decode_produce(13, (await kafka.receive())[1:])
    assert {one.partition: one.error for one in answers} == {0: 7, 1: 0}


async def test_without_rules_connections_have_the_ports_own_dispatcher(
    lab: Lab, kafka: RawConnection
) -> None:
    """Nothing of the faults runs: before the first rule, and after the last one."""

    def dispatchers() -> set[type]:
        (server, *_) = lab.broker.faults._servers
        return {type(one.dispatch) for one in server.connections}

    await produce(kafka, batch(0))
    assert dispatchers() == {KafkaDispatcher}
    name = lab.add("freeze", {"topic": TOPIC, "partition": 0})
    later = await lab.connect()
    await later.call("api_versions", 0)
    assert dispatchers() == {FaultyDispatcher}
    send(kafka, batch(1))
    await until(lambda: lab.counts(name)[0] == 1)
    lab.broker.faults.remove(name)
    assert (await kafka.receive_produce(9))[0].error == 0
    assert dispatchers() == {KafkaDispatcher}


async def test_what_cannot_be_read_ends_the_connection_as_ever(
    lab: Lab, kafka: RawConnection
) -> None:
    """Rules do not make a broken request any better."""
    lab.add("twice")
    kafka.send(0, 9, b"\xff", flexible=True)
    with pytest.raises(ConnectionEndedError):
        await kafka.receive()


async def test_a_broker_with_held_answers_stops_at_once(lab: Lab, kafka: RawConnection) -> None:
    """A held answer does not delay the stop, however long connections may take to drain."""
    lab.add("freeze", {"api": None})
    send(kafka, batch(0))
    lab.add("drop_response", PRODUCE)
    await until(lambda: lab.hits() != [])
    lab.broker.begin_stop()
    (server, *_) = lab.broker.faults._servers
    async with asyncio.timeout(60):
        await server.stop(within_s=3600)


@pytest.mark.parametrize("action", ["drop_request", "drop_response"])
async def test_where_no_answer_is_expected_none_is_missing(
    lab: Lab, kafka: RawConnection, action: str
) -> None:
    """With acks=0 the answers after it are not held up."""
    lab.add(action, {"base_sequence": 0})
    send(kafka, batch(0), acks=0)
    assert await produce(kafka, batch(0, 1)._replace(records=batch(1).records)) == [45]
    assert len(lab.hits()) == 1


@pytest.mark.parametrize("seed", range(3))
async def test_delays_and_repeats_never_change_the_order(
    lab: Lab, kafka: RawConnection, seed: int
) -> None:
    """Whatever is late, in pieces or twice: one connection is worked on and answered in order."""
    slow = {"probability": 0.3, "seed": seed}
    lab.add({"type": "delay_request", "ms": [0, 4]}, PRODUCE, **slow)
    lab.add({"type": "delay_response", "ms": [0, 4]}, PRODUCE, **slow)
    lab.add({"type": "trickle", "bytes": 7, "ms": [0, 2]}, PRODUCE, **slow)
    lab.add("twice", PRODUCE, **slow)
    lab.add({"type": "error_after", "code": 7}, PRODUCE, **slow)
    for sequence in range(40):
        send(kafka, batch(sequence))
    errors = [(await kafka.receive_produce(9))[0].error for _ in range(40)]
    assert set(errors) <= {0, 7}
    appended = [sequence for sequence, verdict in lab.verdicts() if verdict == "append"]
    assert appended == list(range(40))
    assert {hit.action for hit in lab.hits()} >= {"delay_request", "twice"}
