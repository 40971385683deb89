"""A producer on the native port in plain blocking code: one batch at a time, no retries."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterable
from types import TracebackType
from typing import Any, Self

import msgpack

_TIMEOUT_S = 30.0
_VALUE = b"x" * 300


class NativeProducer:
    """Sends batches of one record under its producer id. `ConnectionError` where the broker ends."""

    def __init__(self, address: str, producer_id: int | None = None) -> None:
        host, _, port = address.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), timeout=_TIMEOUT_S)
        self._stream = self._socket.makefile("rb")
        if producer_id is None:
            producer_id = int(self.call("init_producer_id")["producer_id"])
        self.producer_id = producer_id

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._stream.close()
        self._socket.close()

    def create_topic(self, name: str) -> None:
        assert self.call("create_topic", topic=name, partitions=1)["error"]["code"] == 0

    def send_until_the_end(self, topic: str, sequences: Iterable[int]) -> int:
        """The sequence after the last acknowledged one, when all are or the broker exits."""
        acknowledged = 0
        for sequence in sequences:
            try:
                answer = self.call(
                    "produce",
                    topic=topic,
                    partition=0,
                    producer_id=self.producer_id,
                    producer_epoch=0,
                    base_sequence=sequence,
                    records=[{"value": _VALUE}],
                )
            except ConnectionError:
                return acknowledged
            assert answer["error"]["code"] == 0, answer
            acknowledged = sequence + 1
        return acknowledged

    def stored_sequences(self, topic: str) -> list[int]:
        """The base sequence of every batch in the log, in its order."""
        sequences: list[int] = []
        while True:
            fields = {"topic": topic, "partition": 0, "offset": len(sequences), "raw": True}
            answer = self.call("fetch", max_wait_ms=0, **fields)
            assert answer["error"]["code"] == 0, answer
            if not answer["batches"]:
                return sequences
            sequences += base_sequences(answer["batches"])

    def call(self, kind: str, **fields: Any) -> dict[str, Any]:
        message = msgpack.packb({"type": kind, **fields})
        self._socket.sendall(struct.pack(">i", len(message)) + message)
        size = self._read(4)
        answer: dict[str, Any] = msgpack.unpackb(self._read(*struct.unpack(">i", size)))
        return answer

    def _read(self, size: int) -> bytes:
        data = self._stream.read(size)
        if len(data) < size:
            raise ConnectionError("the broker closed the connection")
        return data


def base_sequences(batches: bytes) -> list[int]:
    """The base sequences of one-record batches, in order."""
    found = []
    while batches:
        (length,) = struct.unpack_from(">i", batches, 8)
        found += struct.unpack_from(">i", batches, 53)
        batches = batches[12 + length :]
    return found
