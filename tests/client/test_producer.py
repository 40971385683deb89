"""The blocking producer, which is the asyncio one in a thread."""

from __future__ import annotations

import threading
from collections.abc import Callable
from multiprocessing import get_context

import pytest

from echoless.client.errors import DeliveryError, ProducerError
from echoless.client.producer import BlockingOutcome, Producer
from echoless.client.settings import Settings
from echoless.client.state import ProducerState
from echoless.protocol.records import Record
from tests.support.stored_values import read_stored_values


def test_blocking_calls_do_what_the_asyncio_ones_do(echoless):
    """send, result, send_batch, flush, state and resume."""
    with Producer(echoless.kafka_address) as producer:
        first = producer.send("t", b"a", partition=0)
        assert not first.is_done
        assert (first.result(10).offset, first.result(10).sequence) == (0, 0)
        saved = producer.state()
        producer.send("t", b"b", partition=0, timestamp_ms=1_795_000_000_000)
        outcome = producer.send_batch("t", 0, [Record(-1, 1_795_000_000_000, None, b"c")])
        producer.flush()
        assert outcome.result(0)[0].offset == 2
        keyed = producer.send("t", b"d", key=b"k")
    assert keyed.result(0).offset == 3
    with Producer.resume(saved.to_json(), echoless.kafka_address) as producer:
        assert producer.state() == saved
        producer.send_batch("t", 0, [Record(-1, 1_795_000_000_000, None, b"b")])
        producer.send("t", b"c", partition=0)
        producer.send("t", b"d", partition=0)
        assert producer.send("t", b"e", partition=0).result(10).offset == 4
    assert read_stored_values(echoless.kafka_address, "t", 1) == [[b"a", b"b", b"c", b"d", b"e"]]


def test_send_waits_for_room(echoless):
    """A slow broker slows the sender down instead of filling the memory; nothing is lost."""
    settings = Settings(buffer_bytes_max=2000, batch_bytes_max=500)
    with Producer(echoless.kafka_address, settings) as producer:
        for number in range(500):
            producer.send("t", b"%d" % number, partition=0)
            assert producer._outstanding_bytes <= 2500
    assert len(read_stored_values(echoless.kafka_address, "t", 1)[0]) == 500


def test_flush_raises_the_first_failure_once(echoless):
    """A caller that looks at no delivery still gets the failure."""
    with Producer(echoless.kafka_address, Settings(retry_backoff_s=0.001)) as producer:
        producer.send("no spaces", b"x", partition=0)
        with pytest.raises(DeliveryError, match="INVALID_TOPIC_EXCEPTION"):
            producer.flush()
        producer.flush()


def test_unusable_values_fail_their_delivery(echoless):
    """A text is not bytes; the producer continues."""
    with Producer(echoless.kafka_address) as producer:
        delivery = producer.send("t", "text", partition=0)
        with pytest.raises(TypeError):
            delivery.result(10)
        assert producer.send("t", b"bytes", partition=0).result(10).sequence == 0
        with pytest.raises(TypeError):
            producer.flush()


def test_failed_start_leaves_no_thread():
    """Without a broker there is an error, and nothing keeps running."""
    before = threading.active_count()
    settings = Settings(delivery_timeout_s=0.05, retry_backoff_s=0.001)
    with pytest.raises(ProducerError, match="no producer id"):
        Producer("127.0.0.1:1", settings).start()
    assert threading.active_count() == before


def test_unstarted_and_closed_producers_say_so(echoless):
    """Instead of waiting for ever."""
    producer = Producer(
        echoless.kafka_address, state=ProducerState(producer_id=1, producer_epoch=0)
    )
    with pytest.raises(ProducerError, match="not started"):
        producer.send_batch("t", 0, [Record(-1, 0, None, b"v")])
    producer.start()
    producer.close()
    producer.close()
    with pytest.raises(ProducerError, match="closed"):
        producer.state()


def send_while_the_thread_is_busy(
    producer: Producer,
    count: int,
    then: Callable[[BlockingOutcome], object] = lambda outcome: outcome,
) -> list[BlockingOutcome]:
    """Sends batches that the producer's thread has no time to take over before `then` has seen each."""
    producer.send_batch("t", 0, [Record(-1, 1, None, b"first")]).result(10)
    is_sent = threading.Event()
    producer._loop.call_soon_threadsafe(is_sent.wait)
    record = Record(-1, 1, None, b"v")
    outcomes = [producer.send_batch("t", 0, [record]) for _ in range(count)]
    for outcome in outcomes:
        then(outcome)
    is_sent.set()
    return outcomes


def test_the_state_knows_every_batch_that_was_sent_before(echoless):
    """A batch that the producer's thread has not taken over yet counts: position and state belong together."""
    with Producer(echoless.kafka_address) as producer:
        send_while_the_thread_is_busy(producer, 1000)
        (partition,) = producer.state().partitions
        assert partition.next_sequence + partition.unacknowledged == 1001


def test_close_fails_every_batch_that_was_sent_before(echoless):
    """No caller waits for a batch that the producer's thread had not taken over."""
    producer = Producer(echoless.kafka_address)
    producer.start()
    outcomes = send_while_the_thread_is_busy(producer, 1000)
    producer.close()
    assert all(one.done() for one in outcomes)
    assert isinstance(outcomes[-1].exception(), DeliveryError)


@pytest.fixture
def full(echoless, monkeypatch):
    """A producer whose buffer is full, and whose next wait for room ends as by Ctrl-C."""
    settings = Settings(buffer_bytes_max=1, batch_records_max=2)
    with Producer(echoless.kafka_address, settings) as producer:
        may_continue = threading.Event()
        producer._loop.call_soon_threadsafe(may_continue.wait)
        producer.send_batch("t", 0, [Record(-1, 1, None, b"0")])
        wait = producer._room.wait

        def interrupted(timeout_s: float | None = None) -> bool:
            monkeypatch.setattr(producer._room, "wait", wait)
            may_continue.set()
            raise KeyboardInterrupt

        monkeypatch.setattr(producer._room, "wait", interrupted)
        yield producer


def test_a_batch_interrupted_while_it_waits_for_room_is_sent_by_flush(echoless, full):
    """The batch stays open; the record whose `send` raised was not taken, so that it may be sent again."""
    delivery = full.send("t", b"1", partition=0)
    with pytest.raises(KeyboardInterrupt):
        full.send("t", b"2", partition=0)
    full.flush()
    assert delivery.result(0).sequence == 1
    full.send("t", b"2", partition=0)
    full.send("t", b"3", partition=0)
    full.flush()
    assert read_stored_values(echoless.kafka_address, "t", 1) == [[b"0", b"1", b"2", b"3"]]


def test_a_first_record_interrupted_while_it_waits_for_room_leaves_no_empty_batch(
    echoless, monkeypatch, full
):
    """A batch of one record is full at once: without its record there is nothing to send."""
    monkeypatch.setattr(full._batches, "_records_max", 1)
    with pytest.raises(KeyboardInterrupt):
        full.send("t", b"1", partition=0)
    full.flush()
    assert full.send("t", b"1", partition=0).result(10).sequence == 1
    assert read_stored_values(echoless.kafka_address, "t", 1) == [[b"0", b"1"]]


def test_a_flush_and_a_result_interrupted_while_they_wait_for_room_can_be_repeated(full):
    """Neither has taken the batch out of reach of the other."""
    delivery = full.send("t", b"1", partition=0)
    with pytest.raises(KeyboardInterrupt):
        full.flush()
    assert delivery.result(10).sequence == 1
    full.flush()


def test_a_list_interrupted_while_it_waits_for_room_was_not_taken(echoless, full):
    """The records before it are sent once, and so is the list when it is given again."""
    full.send("t", b"1", partition=0)
    record = Record(-1, 1, None, b"2")
    with pytest.raises(KeyboardInterrupt):
        full.send_batch("t", 0, [record])
    full.send_batch("t", 0, [record])
    full.flush()
    assert read_stored_values(echoless.kafka_address, "t", 1) == [[b"0", b"1", b"2"]]


def test_records_that_a_closed_producer_did_not_send_fail_every_time(echoless):
    """A second `flush` does not pass for a success, and a second `result` does not wait for ever."""
    producer = Producer(echoless.kafka_address)
    producer.start()
    delivery = producer.send("t", b"v", partition=0)
    producer.close()
    for _ in range(2):
        with pytest.raises(ProducerError, match="closed"):
            producer.flush()
        with pytest.raises(ProducerError, match="closed"):
            delivery.result(0)


def test_a_batch_cannot_be_cancelled(echoless):
    """It is on its way: `cancel` says so, and `flush` waits for the batch."""
    with Producer(echoless.kafka_address) as producer:
        outcomes = send_while_the_thread_is_busy(producer, 1, lambda outcome: outcome.cancel())
        assert not outcomes[0].cancelled()
        producer.flush()
        assert outcomes[0].result(0)[0].sequence == 1


def test_a_forked_process_is_refused_and_harms_nothing(echoless, tmp_path):
    """The producer's thread stays in the process that made it, so that a wait for it elsewhere would never end."""
    said = tmp_path / "said"
    with Producer(echoless.kafka_address) as producer:
        done = producer.send("t", b"a", partition=0)
        done.result(10)
        waiting = producer.send("t", b"b", partition=0)
        calls = (done.result, lambda: producer.send("t", b"c", key=b"k"), waiting.result)
        calls += (producer.flush, producer.close, producer.start)
        child = get_context("fork").Process(
            target=lambda: said.write_text("\n".join(map(_outcome, calls)))
        )
        child.start()
        child.join(60)
        child.kill()
        assert waiting.result(10).offset == 1
    forked = "ProducerError: the producer is one of the process that this one was forked from: make one after the fork"
    assert said.read_text().splitlines() == ["done", forked, forked, forked, "done", forked]


def _outcome(call: Callable[[], object]) -> str:
    try:
        call()
    except ProducerError as error:
        return f"{type(error).__name__}: {error}"
    return "done"
