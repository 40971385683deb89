"""The blocking producer, which is the asyncio one in a thread."""

from __future__ import annotations

import threading

import pytest

from client.errors import DeliveryError, ProducerError
from client.producer import BlockingOutcome, Producer
from client.settings import Settings
from client.state import ProducerState
from protocol.records import Record
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


def send_while_the_thread_is_busy(producer: Producer, count: int) -> list[BlockingOutcome]:
    """Sends batches that the producer's thread has no time to take over before they are all there."""
    producer.send_batch("t", 0, [Record(-1, 1, None, b"first")]).result(10)
    is_sent = threading.Event()
    producer._loop.call_soon_threadsafe(is_sent.wait)
    record = Record(-1, 1, None, b"v")
    outcomes = [producer.send_batch("t", 0, [record]) for _ in range(count)]
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
