"""Large frames that never end, and answers that are never read, beside a client that works."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
import time
from pathlib import Path

import pytest

from tests.hostile.target import assert_quiet_log, connect, resident_bytes, until
from tests.support.echoless import Echoless
from tests.support.raw_batches import Batch, records
from tests.support.raw_client import RawConnection, create_topic
from tests.support.raw_produce import PartitionData

TOPIC = "orders"
VERSION = 9
FRAME = 20 * 1024 * 1024
LONGEST_WAIT_S = 20.0
"""Far above what such a request takes on a slow machine, far below the minute for which it once waited."""


class HalfSent:
    """A connection that sends half of a frame of the largest size and then nothing."""

    def __init__(self, address: str) -> None:
        self.connection: socket.socket = connect(address)
        self._thread = threading.Thread(target=self._send)
        self._thread.start()

    def _send(self) -> None:
        with contextlib.suppress(OSError):  # it was closed, by the broker or by the test
            self.connection.sendall(struct.pack(">i", FRAME) + bytes(FRAME // 2))

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self.connection.shutdown(socket.SHUT_RDWR)
        self.connection.close()
        self._thread.join()


def batch(producer_id: int, sequence: int) -> PartitionData:
    data = Batch(
        payload=records([bytes(1_000_000)]),
        record_count=1,
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=sequence,
    )
    return PartitionData(TOPIC, 0, data.encode())


@pytest.mark.slow
async def test_half_sent_frames_do_not_hold_up_a_good_client(tmp_path: Path):
    """Requests of 1 MB go through while two dozen connections each hold half of a large frame."""
    broker = Echoless(tmp_path, {"request_size_max": str(FRAME)})
    broker.start()
    good = await RawConnection.open(broker.kafka_address)
    await create_topic(good, TOPIC, 1)
    before = resident_bytes(broker)
    hostile = [HalfSent(broker.kafka_address) for _ in range(24)]
    until(lambda: resident_bytes(broker) - before > FRAME, "the hostile frames arrive")
    waits = []
    for sequence in range(30):
        begun = time.monotonic()
        (answer,) = await good.produce(VERSION, -1, [batch(7, sequence)])
        waits.append(time.monotonic() - begun)
        assert (answer.error, answer.base_offset) == (0, sequence)
    assert max(waits) < LONGEST_WAIT_S
    assert resident_bytes(broker) - before < 6 * FRAME
    for one in hostile:
        one.close()
    await good.close()
    assert broker.terminate() == 0
    assert_quiet_log(broker)
