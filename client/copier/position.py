"""A copier's place in an input partition: where it goes on reading, and under which numbers it goes on writing.

The offset of the commit is that of the next record to read; its metadata is this, in compact JSON:

    {"v": 1, "id": 4000, "epoch": 0, "born": 1795225533353, "at": 1795225593353, "clean": 0,
     "next": {"orders": {"0": 120, "1": 97}}}

`next` has the sequence of the next record for each output partition, and `id` and `epoch` those of the producer. Both
are exact at that offset: every earlier record is acknowledged. `born` is the time at which the id came into use,
`at` that of the commit (the first of the orderly ends in a row), in milliseconds. `clean` is 1 if no record from the
offset on was sent: the copier has ended there.

Pure. `docs/formats/copier-position.md` is the page.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Final

from echoless.client.sequenced_batch import EPOCH_MAX
from echoless.client.state import PartitionState, ProducerState
from echoless.protocol.sequence import SEQUENCE_MAX

VERSION: Final = 1
METADATA_CHARACTERS_MAX: Final = 4096
"""Kafka's default of `offset.metadata.max.bytes`, which counts characters; these are ASCII."""
_NUMBER_MAX: Final = 2**63 - 1


class PositionError(Exception):
    """The position of an input partition cannot be used, or not be saved; the message says what to do."""


@dataclass(slots=True, frozen=True, kw_only=True)
class Position:
    """The place of a copier in one input partition."""

    offset: int
    """The offset of the next record to read."""
    state: ProducerState
    """Without anything unacknowledged."""
    born_ms: int
    at_ms: int
    is_clean: bool = False

    def metadata(self, characters_max: int = METADATA_CHARACTERS_MAX) -> str:
        """The text that is committed with the offset. Raises `PositionError` if it is too long."""
        state = self.state
        assert not state.unacknowledged, "a position is taken after a flush"
        following: dict[str, dict[str, int]] = {}
        for one in state.partitions:
            is_own = (one.producer_id, one.producer_epoch) == (
                state.producer_id,
                state.producer_epoch,
            )
            assert is_own, "a copier's producer keeps its id and epoch"
            following.setdefault(one.topic, {})[str(one.partition)] = one.next_sequence
        fields = {
            "v": VERSION,
            "id": state.producer_id,
            "epoch": state.producer_epoch,
            "born": self.born_ms,
            "at": self.at_ms,
            "clean": int(self.is_clean),
            "next": following,
        }
        text = json.dumps(fields, separators=(",", ":"))
        if len(text) > characters_max:
            raise PositionError(
                f"the producer's state for {len(state.partitions)} output partitions takes {len(text)} characters, "
                f"and the metadata of a commit has room for {characters_max}: let each input partition have fewer "
                "output partitions, or raise offset_metadata_max_bytes (Kafka: offset.metadata.max.bytes) on the "
                "brokers, and metadata_characters_max here"
            )
        return text

    @classmethod
    def read(cls, offset: int, metadata: str) -> Position:
        """Raises `PositionError` if the metadata was not written by a copier."""
        try:
            fields = json.loads(metadata)
        except ValueError as error:
            raise PositionError(f"its metadata is no copier's: {metadata[:80]!r}") from error
        if not isinstance(fields, dict) or _number(fields, "v", VERSION) != VERSION:
            raise PositionError(f"its metadata is no copier's of version {VERSION}")
        producer_id = _number(fields, "id", _NUMBER_MAX)
        epoch = _number(fields, "epoch", EPOCH_MAX)
        return cls(
            offset=offset,
            state=ProducerState(
                producer_id=producer_id,
                producer_epoch=epoch,
                partitions=tuple(_read_next(fields.get("next"), producer_id, epoch)),
            ),
            born_ms=_number(fields, "born", _NUMBER_MAX),
            at_ms=_number(fields, "at", _NUMBER_MAX),
            is_clean=bool(_number(fields, "clean", 1)),
        )


def _read_next(topics: Any, producer_id: int, epoch: int) -> list[PartitionState]:
    if not isinstance(topics, dict):
        raise PositionError("its metadata: next is an object of topics")
    found = []
    for topic, partitions in topics.items():
        if not isinstance(partitions, dict):
            raise PositionError(f"its metadata: next of {topic} is an object of partitions")
        for index in partitions:
            if not (index.isascii() and index.isdecimal()):
                raise PositionError(f"its metadata: {topic} has no partition {index!r}")
            found.append(
                PartitionState(
                    topic=topic,
                    partition=int(index),
                    producer_id=producer_id,
                    producer_epoch=epoch,
                    next_sequence=_number(partitions, index, SEQUENCE_MAX),
                )
            )
    return found


def _number(fields: dict[str, Any], name: str, most: int) -> int:
    value = fields.get(name)
    if type(value) is not int or not 0 <= value <= most:
        raise PositionError(
            f"its metadata: {name} is a number from 0 to {most}, not {str(value)[:40]!r}"
        )
    return value
