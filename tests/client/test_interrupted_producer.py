"""Ctrl-C at any moment of the blocking producer: no record is lost, and none is stored twice."""

from __future__ import annotations

import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from types import FrameType

from echoless.client import open_batches, producer
from echoless.client.producer import Producer
from echoless.client.settings import Settings
from tests.support.stored_values import read_stored_values

FILES = {producer.__file__, open_batches.__file__, threading.__file__}
WAITS = {"wait", "wait_for"}
"""Functions of `threading` that give the lock back while they wait."""


class Interrupt:
    """Raises `KeyboardInterrupt` at the n-th moment at which Python may: as a call begins or has returned."""

    def __init__(self, countdown: int) -> None:
        self._countdown = countdown

    @property
    def was_raised(self) -> bool:
        return self._countdown < 0

    def __call__(self, frame: FrameType, event: str, _: object) -> None:
        if event not in ("call", "c_return") or frame.f_code.co_filename not in FILES:
            return
        if frame.f_code.co_name in WAITS:
            return
        self._countdown -= 1
        if self.was_raised:  # raising also ends the profiling
            raise KeyboardInterrupt


def send_and_flush(producer: Producer, values: list[bytes], interrupt: Interrupt) -> int:
    """Returns how many of the values were taken before the interrupt, for certain."""
    taken = 0
    sys.setprofile(interrupt)
    try:
        for value in values:
            producer.send("t", value, partition=0)
            taken += 1
        producer.flush()
    except KeyboardInterrupt:
        pass
    finally:
        sys.setprofile(None)
    return taken


def is_free(condition: threading.Condition) -> bool:
    """Whether another thread gets the condition's lock."""
    with ThreadPoolExecutor(1) as threads:
        is_taken = threads.submit(condition.acquire, timeout=5).result()
        if is_taken:
            threads.submit(condition.release).result()
        return is_taken


def test_an_interrupt_at_any_call_loses_and_repeats_nothing(echoless):
    """Records that `send` took are stored once by the next `flush`; the one it was busy with at most once."""
    sure, possible, moments = [], [], 0
    with Producer(echoless.kafka_address, Settings(batch_records_max=2)) as producer:
        while True:
            values = [b"%d of %d" % (number, moments) for number in range(3)]
            interrupt = Interrupt(moments)
            taken = send_and_flush(producer, values, interrupt)
            assert is_free(producer._room), f"close would wait for ever, moment {moments}"
            producer.flush()
            sure += values[:taken]
            possible += values[: taken + 1]
            if not interrupt.was_raised:
                break
            moments += 1
    (stored,) = read_stored_values(echoless.kafka_address, "t", 1)
    assert moments > 30
    assert [value for value in possible if value in stored] == stored
    assert [value for value in stored if value in sure] == sure


def test_a_delivery_has_an_outcome_after_an_interrupt_at_any_call(echoless):
    """Although the call that was interrupted had just handed over its batch, and nothing follows."""
    moments = 0
    with Producer(echoless.kafka_address, Settings(batch_records_max=2)) as producer:
        while True:
            delivery = producer.send("t", b"v", partition=0)
            interrupt = Interrupt(moments)
            send_and_flush(producer, [b"v"], interrupt)
            delivery.result(20)
            if not interrupt.was_raised:
                break
            moments += 1
    assert moments > 20
