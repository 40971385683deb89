"""Messages of the native port: each with its own fields, some of them of another type."""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable, Sequence
from typing import Any

import msgpack

from tests.hostile.fuzz.values import Values, mutated

_ODD: tuple[Any, ...] = (
    None,
    True,
    -1,
    2**31,
    2**63,
    -(2**63),
    2**64 - 1,
    1.5,
    float("nan"),
    float("inf"),
    "",
    "x" * 70_000,
    b"",
    b"\xff" * 16,
    [],
    [None],
    [[]] * 3,
    {},
    {"": None},
    {1: 2},
    msgpack.ExtType(1, b"x"),
)
_Fields = Callable[[Values], dict[str, Any]]


def _partition(values: Values) -> dict[str, Any]:
    return {"topic": values.text("topic"), "partition": values.integer("partition", 32)}


def _record(values: Values) -> Any:
    record = {"key": b"k", "value": "v", "headers": [["h", b"x"]], "timestamp": 5}
    if values.is_hostile():
        record[values.rng.choice(list(record))] = values.rng.choice(_ODD)
    return values.rng.choice(_ODD) if values.is_hostile() else record


def _produce(values: Values) -> dict[str, Any]:
    fields = {**_partition(values), "acks": values.rng.choice((-1, 0, 1)), "timeout_ms": 100}
    if values.rng.random() < 0.5:
        return fields | {"batch": values.batch()}
    return fields | {
        "records": [_record(values) for _ in range(values.rng.randint(0, 3))],
        "compression": values.rng.choice(("none", "gzip", "snappy", "lz4", "zstd", "rar")),
        "producer_id": values.integer("producer_id", 64),
        "producer_epoch": values.integer("producer_epoch", 16),
        "base_sequence": values.integer("base_sequence", 32),
    }


def _marker(v: Values) -> dict[str, Any]:
    return {
        "producer_id": abs(v.integer("producer_id", 64)),
        "producer_epoch": abs(v.integer("producer_epoch", 16)),
        "number": abs(v.integer("number", 64)),
        "is_commit": v.rng.random() < 0.5,
        "state_partition": abs(v.integer("state_partition", 32)),
        "coordinator_epoch": abs(v.integer("coordinator_epoch", 32)),
        "client_version": 2,
        "partitions": [[v.text("topic"), v.topic_id().bytes, abs(v.integer("partition", 32))]],
    }


def _in_session(v: Values) -> dict[str, Any]:
    return {
        "session": abs(v.integer("session", 64)),
        "session_epoch": v.rng.choice((0, 1, 2)),
        "forgotten": [v.integer("forgotten", 64)],
    }


def _replica_partition(values: Values) -> dict[str, Any]:
    return {
        **_partition(values),
        "topic_id": values.topic_id().bytes,
        "leader_epoch": abs(values.integer("leader_epoch", 16)),
        "offset": abs(values.integer("offset", 32)),
        "last_epoch": values.integer("last_epoch", 16),
        "number": abs(values.integer("number", 32)),
    }


_MESSAGES: dict[str, _Fields] = {
    "hello": lambda v: {"version": v.integer("version", 16), "client_id": v.text("client_id")},
    "init_producer_id": lambda _: {},
    "lease_pid": lambda v: (
        {"partitions": [[v.text("topic"), v.integer("partition", 32)]]}
        if v.rng.random() < 0.5
        else _partition(v)
    ),
    "produce": _produce,
    "fetch": lambda v: {
        **_partition(v),
        "offset": v.integer("offset", 64),
        "max_wait_ms": v.rng.choice((0, 1, 2**31 - 1)),
        "raw": v.rng.random() < 0.5,
    },
    "producer_state": lambda v: {**_partition(v), "skip": v.integer("skip", 32)},
    "metadata": lambda v: {"topics": v.rng.choice((None, [v.text("topic")]))},
    "create_topic": lambda v: {
        "topic": v.text("topic"),
        "partitions": v.integer("partitions", 32),
        "replication_factor": v.integer("replication_factor", 16),
        "configs": {v.text("configs.name"): v.text("value")},
    },
    "replica_fetch": lambda v: {
        "broker_id": v.rng.choice((0, 1, 2)),
        "broker_epoch": v.integer("broker_epoch", 64),
        "max_wait_ms": 0,
        "min_bytes": 0,
        "partitions": [_replica_partition(v) for _ in range(v.rng.randint(0, 2))],
        **(_in_session(v) if v.rng.random() < 0.5 else {}),
    },
    "replica_wake": lambda v: {
        "broker_id": v.rng.choice((0, 1, 2)),
        "session": abs(v.integer("session", 64)),
    },
    "replica_snapshot": lambda v: {
        "broker_id": 1,
        **_replica_partition(v),
        "position": abs(v.integer("position", 64)),
    },
    "await_topic": lambda v: {
        "topic": v.text("topic"),
        "topic_id": v.topic_id().bytes,
        "timeout_ms": 1,
    },
    "note_tree": lambda v: {"last_id": v.integer("last_id", 64)},
    "find_transactions": lambda v: {
        "broker_id": v.rng.choice((0, 1, 2)),
        "producer_ids": [v.integer("producer_id", 64) for _ in range(v.rng.randint(0, 3))],
    },
    "write_markers": lambda v: {
        "broker_id": v.rng.choice((0, 1, 2)),
        "transactions": [_marker(v) for _ in range(v.rng.randint(0, 2))],
    },
    "add_or_verify": lambda v: {
        "broker_id": v.integer("broker_id", 32),
        "transactions": [
            {
                "transactional_id": v.text("transactional_id"),
                "producer_id": v.integer("producer_id", 64),
                "producer_epoch": v.integer("producer_epoch", 16),
                "is_add": v.rng.random() < 0.5,
                "client_version": v.rng.choice((0, 2)),
                "partitions": [[v.text("topic"), v.topic_id().bytes, v.integer("partition", 32)]],
            }
            for _ in range(v.rng.randint(0, 2))
        ],
    },
    "admin_read": lambda v: {
        "name": v.rng.choice(("overview", "producers", "events", v.text("name"))),
        "query": {v.text("query"): v.text("value")},
        "names": {"topic": v.text("topic"), "partition": v.text("partition")},
        "principal": v.text("principal"),
        "address": v.text("address"),
    },
    "no_such_message": lambda _: {},
}
TYPES = tuple(_MESSAGES)


def native_message(rng: random.Random, number: int, topic_ids: Sequence[uuid.UUID]) -> bytes:
    """A frame without its length. All types take turns with `number`."""
    values = Values(rng, topic_ids, rng.choice((0.0, 0.05, 0.3)))
    name = TYPES[number % len(TYPES)]
    fields = {"type": name, "correlation_id": number, **_MESSAGES[name](values)}
    for field in list(fields):
        if values.is_hostile():
            if rng.random() < 0.3:
                del fields[field]
            else:
                fields[field] = rng.choice(_ODD)
    try:
        data: bytes = msgpack.packb(fields)
    except (OverflowError, ValueError):
        data = rng.randbytes(30)
    return mutated(rng, data) if rng.random() < 0.15 else data
