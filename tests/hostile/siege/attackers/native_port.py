"""Messages to the native port that no client of ours sends (items 1 and 13 of the issue)."""

from __future__ import annotations

import random
from typing import Any

import msgpack

from tests.hostile.siege.attacker import Line, OnOneLine, claim

_TYPES = (
    *("hello", "init_producer_id", "lease_pid", "produce", "fetch", "producer_state"),
    *("metadata", "replica_snapshot", "await_topic", "note_tree", "replica_fetch"),
)
_VALUES: tuple[Any, ...] = (
    *(None, True, -1, 0, 2**31, 2**63 - 1, -(2**63), 2**64 - 1, 0.5, "", "good", "x" * 70_000),
    *(b"", b"\0" * 16, [], [[]], {}, {"a": None}, [None] * 10_001, [["good", 0]] * 3),
)
_FIELDS = (
    *("topic", "partition", "partitions", "topic_id", "offset", "acks", "records", "batch"),
    *("producer_id", "producer_epoch", "base_sequence", "version", "client_id", "broker_id"),
    *("broker_epoch", "max_wait_ms", "min_bytes", "bytes_max", "leader_epoch", "limit", "skip"),
    *("timeout_ms", "topics", "raw", "position", "compression"),
)


class NativeGarbage(OnOneLine):
    name = "native-garbage"
    does = "msgpack of wrong types, extreme numbers, unknown messages, or none at all"
    port = "native"

    async def ask(self, line: Line, rng: random.Random) -> str:
        kind = rng.choice((*_TYPES, "", "x" * 1000))
        fields = {rng.choice(_FIELDS): rng.choice(_VALUES) for _ in range(rng.randint(0, 8))}
        fields |= {"max_wait_ms": 10, "timeout_ms": 10} if rng.random() < 0.8 else {}
        if fields.get("topic") == "good" and kind == "produce":
            fields["topic"] = "bombs"
        data = msgpack.packb({"type": kind, "correlation_id": 1, **fields})
        if rng.random() < 0.2:
            data = rng.randbytes(40) + data[rng.randrange(len(data)) :]
        if fields.get("acks") == 0:
            return "not sent: has no answer"
        return await _answer(line, data)


class WrongHellos(OnOneLine):
    name = "wrong-hellos"
    does = "hello with versions that are not spoken and names of any length"
    port = "native"

    async def ask(self, line: Line, rng: random.Random) -> str:
        version = rng.choice((0, -1, 2, 2**63 - 1, None, "1"))
        name = rng.choice(("x" * 60_000, "\n\x1b[31m", None, 5))
        return await _answer(
            line, msgpack.packb({"type": "hello", "version": version, "client_id": name})
        )


class FalseReplicas(OnOneLine):
    name = "false-replicas"
    does = "replica_fetch as the leader itself, as brokers that do not exist, of offsets to come"
    port = "native"

    async def ask(self, line: Line, rng: random.Random) -> str:
        row = {
            "topic": rng.choice(("good", "none")),
            "topic_id": rng.choice((bytes(16), rng.randbytes(16))),
            "partition": rng.choice((0, 2**31 - 1)),
            "leader_epoch": rng.choice((0, 1, 2**31 - 1)),
            "offset": rng.choice((0, 2**62)),
            "last_epoch": rng.choice((-1, 0, 2**31 - 1)),
        }
        fields = {
            "type": "replica_fetch",
            "broker_id": rng.choice((1, 1, 2, 2**31 - 1)),
            "broker_epoch": rng.choice((0, 1, 2**62)),
            "max_wait_ms": 20,
            "min_bytes": rng.choice((0, 1, 2**31 - 1)),
            "partitions": [row] * rng.choice((1, 100, 100, 10_000)),
        }
        return await _answer(line, msgpack.packb(fields))


async def _answer(line: Line, data: bytes) -> str:
    """The broker's answer to one frame of the native port."""
    line.send_bytes(claim(len(data)) + data)
    answer = msgpack.unpackb(await line.read_frame(), strict_map_key=False)
    error = answer.get("error", {}).get("code", 0)
    return f"error {error}" if error else "answered"
