"""The state that a producer needs after a crash to continue under the same numbers.

    {"version": 1, "producer_id": 4000, "producer_epoch": 0,
     "partitions": [{"topic": "orders", "partition": 0, "producer_id": 4000, "producer_epoch": 0,
                     "next_sequence": 120, "unacknowledged": 0}]}

`next_sequence` is the number of the first record that was not acknowledged when the state was
taken; `unacknowledged` says how many had been given to the producer from there on. A partition that
is not listed begins at 0 under the producer's own id and epoch.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Final, Self

from echoless.client.sequenced_batch import EPOCH_MAX
from echoless.protocol.sequence import SEQUENCE_MAX

VERSION: Final = 1
_PRODUCER_ID_MAX: Final = 2**63 - 1


class StateError(ValueError):
    """The text is no producer state; the message names the field."""


@dataclass(slots=True, frozen=True, kw_only=True)
class PartitionState:
    """The numbers of a producer in one partition."""

    topic: str
    partition: int
    producer_id: int
    producer_epoch: int
    next_sequence: int
    """The sequence of the first record without an acknowledgement."""
    unacknowledged: int = 0
    """Number of records that were given to the producer from there on."""


@dataclass(slots=True, frozen=True, kw_only=True)
class ProducerState:
    """The numbers from which a producer continues after a crash (`docs/client.md`)."""

    producer_id: int
    producer_epoch: int
    partitions: tuple[PartitionState, ...] = ()
    """Partitions that are not listed begin at sequence 0, under the producer's own id and epoch."""

    @property
    def unacknowledged(self) -> int:
        """Number of records that a resumed producer has to be given again."""
        return sum(partition.unacknowledged for partition in self.partitions)

    def to_json(self) -> str:
        """The text that `from_json` reads, of version 1."""
        partitions = [
            {name: getattr(one, name) for name in one.__slots__} for one in self.partitions
        ]
        fields = {"producer_id": self.producer_id, "producer_epoch": self.producer_epoch}
        return json.dumps({"version": VERSION, **fields, "partitions": partitions})

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Reads the text of `to_json`. Raises `StateError`."""
        try:
            fields = json.loads(text)
        except ValueError as error:
            raise StateError(f"a producer state is JSON: {error}") from error
        if not isinstance(fields, dict) or fields.get("version") != VERSION:
            raise StateError(f"a producer state is an object of version {VERSION}")
        partitions = fields.get("partitions")
        if not isinstance(partitions, list):
            raise StateError("partitions: a list is needed")
        return cls(
            producer_id=_number(fields, "producer_id", _PRODUCER_ID_MAX),
            producer_epoch=_number(fields, "producer_epoch", EPOCH_MAX),
            partitions=tuple(_read_partition(one) for one in partitions),
        )


def _read_partition(fields: Any) -> PartitionState:
    if not isinstance(fields, dict) or not isinstance(fields.get("topic"), str):
        raise StateError("partitions: each is an object with a topic")
    return PartitionState(
        topic=fields["topic"],
        partition=_number(fields, "partition", SEQUENCE_MAX),
        producer_id=_number(fields, "producer_id", _PRODUCER_ID_MAX),
        producer_epoch=_number(fields, "producer_epoch", EPOCH_MAX),
        next_sequence=_number(fields, "next_sequence", SEQUENCE_MAX),
        unacknowledged=_number(fields, "unacknowledged", SEQUENCE_MAX),
    )


def _number(fields: dict[str, Any], name: str, most: int) -> int:
    value = fields.get(name)
    if type(value) is not int or not 0 <= value <= most:
        raise StateError(f"{name}: a number from 0 to {most} is needed, not {value!r}")
    return value
