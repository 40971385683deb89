"""The meaning of the words of a command."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, Final

from echoless.broker.config.loading import LogFlush
from tests.simulation.machine import EPOCH_MS
from tests.support.raw_batches import plain_batch

COORDINATOR: Final = "coordinator"
CLIENT: Final = "client"


def setting(name: str, value: str) -> Any:
    """The value of a setting."""
    if name == "log_flush":
        return LogFlush(value)
    return int(value) if value.isdecimal() else value


def ids(brokers: str) -> tuple[int, ...]:
    """`1,2,3`."""
    return tuple(map(int, brokers.split(",")))


def partition(name: str) -> tuple[str, int]:
    """`t-0`: topic and index."""
    topic, _, index = name.rpartition("-")
    return topic, int(index)


def node(side: str) -> str:
    """A node of the network: `2`, `zk`, `client`."""
    return {"zk": COORDINATOR, CLIENT: CLIENT}.get(side, f"broker-{side}")


def links(sides: Sequence[str]) -> list[tuple[str, str]]:
    """Both directions between the nodes before and after the `|`."""
    border = sides.index("|")
    pairs = itertools.product(map(node, sides[:border]), map(node, sides[border + 1 :]))
    return [link for one, other in pairs for link in ((one, other), (other, one))]


def batch(records: str, value: str) -> tuple[bytes, int]:
    """The bytes of one batch, and how many records it has.

    `7/0:3-5`: producer 7 in epoch 0 with sequences 3 to 5. `x2`: two records without a producer.
    """
    if records.startswith("x"):
        count = int(records[1:] or 1)
        values = [(value or "x").encode()] * count
        return plain_batch(values, timestamp=EPOCH_MS).encode(), count
    producer, _, sequences = records.partition(":")
    producer_id, _, producer_epoch = producer.partition("/")
    first, _, last = sequences.partition("-")
    numbers = range(int(first), int(last or first) + 1)
    batch = plain_batch(
        [f"{producer}:{number}{value}".encode() for number in numbers],
        producer_id=int(producer_id),
        producer_epoch=int(producer_epoch),
        base_sequence=numbers[0],
        timestamp=EPOCH_MS,
    )
    return batch.encode(), len(numbers)
