"""A history: requests to a few fresh partitions, in two halves with a restart between them.

Seeded: the same seed and number give the same history, whatever was played before it. Partitions
are slots here; a run binds them to real ones.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field

from tests.oracle.game import Halves


class TopicKind(enum.Enum):
    """The topics that a run creates; the values are their name prefixes."""

    CREATE_TIME = "create-time"
    APPEND_TIME = "append-time"
    SMALL = "small"

    @property
    def configs(self) -> dict[str, str]:
        if self is TopicKind.APPEND_TIME:
            return {"message.timestamp.type": "LogAppendTime"}
        return {"max.message.bytes": str(SMALL_BYTES_MAX)} if self is TopicKind.SMALL else {}


SMALL_BYTES_MAX = 600
UNKNOWN_TOPIC = -1
"""Replaces a slot: a topic that does not exist."""
UNKNOWN_PARTITION = -2
"""Replaces a slot: a partition that the topic does not have."""


@dataclass(slots=True, kw_only=True)
class Part:
    """The part of a request for one partition."""

    slot: int
    records: bytes | None
    note: str
    """How the generator made it, for people."""
    flaw: str = ""
    """Its flaw, if it may be refused before the de-duplication decision."""


@dataclass(slots=True, kw_only=True)
class Produce:
    """One produce request. Kafka 3.9 gets at most version 11 of it."""

    version: int
    acks: int
    parts: tuple[Part, ...]

    def __str__(self) -> str:
        parts = "; ".join(f"slot {part.slot}: {part.note}" for part in self.parts)
        return f"produce v{self.version} acks={self.acks} {parts}"


@dataclass(slots=True, kw_only=True)
class Describe:
    """DescribeProducers of one slot."""

    slot: int

    def __str__(self) -> str:
        return f"describe producers of slot {self.slot}"


@dataclass(slots=True, kw_only=True)
class InitProducerId:
    """InitProducerId with these fields; the returned id is not used."""

    version: int
    transactional_id: str | None = None
    producer_id: int = -1
    producer_epoch: int = -1

    def __str__(self) -> str:
        return (
            f"init producer id v{self.version} transactional_id={self.transactional_id!r} "
            f"producer_id={self.producer_id} producer_epoch={self.producer_epoch}"
        )


Step = Produce | Describe | InitProducerId


@dataclass(slots=True, kw_only=True)
class ProducersHistory:
    """`halves[1]` is played after the restart."""

    seed: int
    number: int
    slots: list[TopicKind]
    halves: Halves[Step] = field(default_factory=lambda: ([], []))
