"""`python -m tests.hostile.siege.good_producer ADDRESS`: an idempotent producer at an even rate.

One batch in flight at a time, acks=all; the time of each answer goes to standard output as JSON
when standard input ends. A connection that ends is reopened and the batch repeated, as the protocol
requires, and both are counted.
"""

from __future__ import annotations

import contextlib
import json
import selectors
import socket
import struct
import sys
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path

from tests.hostile.siege.traffic import BATCHES_PER_S, TOPIC, batch
from tests.hostile.target import framed, header
from tests.support.raw_produce import (
    PRODUCE,
    PartitionAnswer,
    PartitionData,
    decode_produce,
    encode_produce,
)

_VERSION = 7
_INIT_PRODUCER_ID = 22
_ANSWER_TIMEOUT_S = 30.0
_PAUSE_S = 0.05
_GIVE_UP_S = 30.0


@dataclass
class Report:
    """The producer's figures."""

    batches: int = 0
    waits: list[tuple[float, float, float]] = field(default_factory=list)
    """When each batch was sent (monotonic), how many seconds its acknowledgement took, and for how many
    of them this process was ready to run while the machine ran others."""
    gave_up: bool = False
    """Whether the last batch was never acknowledged."""
    reconnects: list[str] = field(default_factory=list)
    refusals: list[str] = field(default_factory=list)


class GoodProducer:
    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self._address = (host, int(port))
        self.report = Report()
        self._connect()
        body = struct.pack(">hi", -1, 60_000)
        answer = self._call(header(_INIT_PRODUCER_ID, 1, b"good", flexible=False) + body)
        _, error, self._producer_id, _ = struct.unpack_from(">ihqh", answer)
        assert error == 0, f"InitProducerId: error {error}"

    def run(self) -> None:
        """Sends until standard input ends, or a batch has to be given up."""
        selector = selectors.DefaultSelector()
        selector.register(sys.stdin, selectors.EVENT_READ)
        due = time.monotonic()
        while not selector.select(max(0.0, due - time.monotonic())):
            due = max(due + 1 / BATCHES_PER_S, time.monotonic() - 0.1)
            if not self._send(self.report.batches):
                self.report.gave_up = True
                return
            self.report.batches += 1

    def _send(self, number: int) -> bool:
        """Whether the batch was acknowledged."""
        row = PartitionData(TOPIC, 0, batch(number, self._producer_id).encode())
        body = encode_produce(_VERSION, -1, [row])
        frame = header(PRODUCE, _VERSION, b"good", flexible=False) + body
        began, queued_s = time.monotonic(), _queued_s()
        deadline = began + _GIVE_UP_S
        is_acknowledged = False
        while not is_acknowledged and time.monotonic() < deadline:
            is_acknowledged = self._is_acknowledged(number, frame)
        self.report.waits.append((began, time.monotonic() - began, _queued_s() - queued_s))
        return is_acknowledged

    def _is_acknowledged(self, number: int, frame: bytes) -> bool:
        try:
            (answer,) = decode_produce(_VERSION, self._call(frame))
        except OSError as error:
            self.report.reconnects.append(f"batch {number}: {error!r}")
            self._socket.close()
            time.sleep(_PAUSE_S)
            with contextlib.suppress(OSError):
                self._connect()
            return False
        return self._judge(number, answer)

    def _judge(self, number: int, answer: PartitionAnswer) -> bool:
        if answer.error == 0:
            return True
        self.report.refusals.append(f"batch {number}: error {answer.error}")
        time.sleep(_PAUSE_S)
        return False

    def _call(self, frame: bytes) -> bytes:
        """The answer after its correlation id."""
        self._socket.sendall(framed(frame))
        (size,) = struct.unpack(">i", self._read(4))
        return self._read(size)[4:]

    def _read(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            more = self._socket.recv(size - len(data))
            if not more:
                raise ConnectionResetError("the broker closed the connection")
            data += more
        return data

    def _connect(self) -> None:
        self._socket = socket.create_connection(self._address, timeout=_ANSWER_TIMEOUT_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def _queued_s() -> float:
    return int(Path("/proc/self/schedstat").read_text().split()[1]) / 1e9


def main() -> None:
    producer = GoodProducer(sys.argv[1])
    print("started", flush=True)
    producer.run()
    print(json.dumps(asdict(producer.report)), flush=True)


if __name__ == "__main__":
    main()
