"""A broker's native port for tests: one msgpack message, one answer (`docs/native.md`).

Each call opens its own connection, so there is nothing to close, and no state.
"""

from __future__ import annotations

import socket
import struct
from typing import Any, Final

import msgpack

_LENGTH: Final = struct.Struct(">i")
_TIMEOUT_S: Final = 40.0
_UNKNOWN: Final = -1
"""The high watermark as a broker answers a client that has to pause because of its quota."""


class NativeError(Exception):
    """The broker did not answer, or answered with an error."""

    def __init__(self, said: str, code: int | None = None) -> None:
        super().__init__(said)
        self.code = code
        """Kafka's error code; None without an answer."""


class Native:
    """A broker's native port (`docs/native.md`), blocking: one msgpack message, one answer. Stateless."""

    def __init__(self, address: str, *, timeout_s: float = _TIMEOUT_S) -> None:
        """`address` is `host:port`."""
        self.address = address
        self._timeout_s = timeout_s

    def call(self, message_type: str, **fields: Any) -> dict[str, Any]:
        """The answer to one message. Raises `NativeError`."""
        host, _, port = self.address.rpartition(":")
        try:
            with socket.create_connection((host, int(port)), self._timeout_s) as sock:
                frame = msgpack.packb({"type": message_type, **fields})
                sock.sendall(_LENGTH.pack(len(frame)) + frame)
                with sock.makefile("rb") as stream:
                    (size,) = _LENGTH.unpack(stream.read(_LENGTH.size))
                    answer: dict[str, Any] = msgpack.unpackb(stream.read(size))
        except (OSError, struct.error, ValueError) as error:
            raise NativeError(f"{self.address}: {message_type}: {error}") from error
        refusal = answer["error"]
        if refusal["code"]:
            said = f"{self.address}: {message_type}: {refusal['name']} {refusal['message']}"
            raise NativeError(said, refusal["code"])
        return answer

    def init_producer_id(self) -> int:
        """An unused producer id; its epoch is 0."""
        return int(self.call("init_producer_id")["producer_id"])

    def create_topic(
        self, topic: str, partitions: int = 1, replicas: int = 1, **configs: str
    ) -> None:
        """Returns when its partitions accept records; `_` stands for `.` in the names of configs."""
        self.call(
            "create_topic",
            topic=topic,
            partitions=partitions,
            replication_factor=replicas,
            configs={name.replace("_", "."): value for name, value in configs.items()},
        )

    def values(self, topic: str, partition: int, first_offset: int = 0) -> list[bytes]:
        """Every committed record's value from an offset on, in log order.

        Only the leader answers.
        """
        found: list[bytes] = []
        end, offset = _UNKNOWN, first_offset
        while end == _UNKNOWN or offset < end:
            answer = self.call(
                "fetch", topic=topic, partition=partition, offset=offset, max_wait_ms=0, min_bytes=0
            )
            found += [record["value"] for record in answer["records"]]
            offset = answer["next_offset"]
            if answer["high_watermark"] != _UNKNOWN:
                end = answer["high_watermark"]
        return found
