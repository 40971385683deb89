"""A producer that sends exactly the ids, epochs and sequences it is given, over the Kafka protocol.

    producer = ScriptedProducer.open(broker.bootstrap_servers)
    a = Batch("orders", 0, producer_id=4000, producer_epoch=0, base_sequence=114, values=...)
    producer.send(a); producer.send(b)             # both are in flight
    batch, answer = producer.receive(timeout_s=1)  # whichever is answered first

It checks nothing, repeats nothing and follows no leader. Answers are matched by their correlation
ids, so that a lost one does not spoil those after it. Blocking; one thread owns it.
"""

from __future__ import annotations

import itertools
import socket
import time
from typing import Any, Final, NamedTuple, Self

from echoless.client.answers import PartitionProduceResponse
from echoless.client.connection import BrokerConnection, ConnectionFailedError
from echoless.client.messages import LENGTH, answer_size, decode_answer, encode_produce
from echoless.client.security import NO_SECURITY, Security
from echoless.protocol.errors import DecodeError
from echoless.protocol.record_batch import Codec
from echoless.protocol.records import Record, build_batch

_PRODUCE: Final = "produce"
_VERSION: Final = 9
_BROKER_TIMEOUT_MS: Final = 30_000
_CONNECT_TIMEOUT_S: Final = 10.0
_NO_TIMESTAMP: Final = -1


class ScriptedBatch(NamedTuple):
    """One batch as it is to be sent; the last sequence follows from the number of its records."""

    topic: str
    partition: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    values: tuple[bytes, ...]
    timestamp: int = _NO_TIMESTAMP
    """The time of all its records, in milliseconds."""

    @property
    def last_sequence(self) -> int:
        return self.base_sequence + len(self.values) - 1


class NoAnswerError(Exception):
    """No answer came in time, or the connection ended: the batch may be stored or not."""


class ScriptedProducer:
    """One connection to one broker, with any number of batches in flight."""

    def __init__(self, sock: socket.socket, address: str) -> None:
        self.address = address
        self._socket = sock
        self._correlation_ids = itertools.count(1)
        self._under_way: dict[int, ScriptedBatch] = {}
        self._received = bytearray()

    @classmethod
    def open(cls, address: str, security: Security = NO_SECURITY) -> Self:
        """Connects to `host:port`, and logs in if need be. Raises `NoAnswerError`."""
        host, _, port = address.rpartition(":")
        try:
            if security is not NO_SECURITY:
                connection = BrokerConnection.open(host, int(port), _CONNECT_TIMEOUT_S, security)
                return cls(connection.detach(), address)
            sock = socket.create_connection((host, int(port)), _CONNECT_TIMEOUT_S)
        except (OSError, ConnectionFailedError) as error:
            raise NoAnswerError(f"{address}: {error}") from error
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return cls(sock, address)

    def send(self, batch: ScriptedBatch) -> None:
        """Returns when the operating system has the request. Raises `NoAnswerError`."""
        correlation_id = next(self._correlation_ids)
        parts = encode_produce(
            _VERSION,
            correlation_id,
            batch.topic,
            batch.partition,
            encode(batch),
            timeout_ms=_BROKER_TIMEOUT_MS,
        )
        self._under_way[correlation_id] = batch
        try:
            self._socket.settimeout(_CONNECT_TIMEOUT_S)
            self._socket.sendall(b"".join(parts))
        except OSError as error:
            raise NoAnswerError(f"{self.address}: {error}") from error

    @property
    def under_way(self) -> list[ScriptedBatch]:
        """The batches sent and not answered, in the order of sending."""
        return list(self._under_way.values())

    def receive(self, *, timeout_s: float) -> tuple[ScriptedBatch, PartitionProduceResponse]:
        """The next answer, and the batch it answers. Raises `NoAnswerError`."""
        deadline = time.monotonic() + timeout_s
        try:
            size = answer_size(self._take(LENGTH.size, deadline))
            frame = self._take(size, deadline)
        except (OSError, DecodeError) as error:
            raise NoAnswerError(f"{self.address}: {str(error) or 'no answer in time'}") from error
        (correlation_id,) = LENGTH.unpack_from(frame)
        batch = self._under_way.pop(correlation_id)
        row = decode_answer(_PRODUCE, _VERSION, correlation_id, frame).responses[0]
        return batch, _answer(row.partition_responses[0])

    def close(self) -> None:
        self._socket.close()

    def _take(self, size: int, deadline: float) -> bytes:
        """`size` bytes off the stream; a partial frame stays there when the time is over."""
        while len(self._received) < size:
            left = deadline - time.monotonic()
            if left <= 0:
                raise TimeoutError
            self._socket.settimeout(left)
            part = self._socket.recv(1 << 16)
            if not part:
                raise ConnectionResetError("the broker closed the connection")
            self._received += part
        taken = bytes(self._received[:size])
        del self._received[:size]
        return taken


def encode(batch: ScriptedBatch) -> bytes:
    """The record batch: the same bytes each time it is sent."""
    return build_batch(
        [Record(0, batch.timestamp, None, value) for value in batch.values],
        codec=Codec.NONE,
        producer_id=batch.producer_id,
        producer_epoch=batch.producer_epoch,
        base_sequence=batch.base_sequence,
    )


def _answer(row: Any) -> PartitionProduceResponse:
    return PartitionProduceResponse(
        int(row.error_code), row.base_offset, message=row.error_message or ""
    )
