"""The interface of a script: the games that it plays, and the needs of these."""

from __future__ import annotations

import enum
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, NamedTuple, TypeVar

from tests.oracle.game import Game, Halves
from tests.oracle.side import Sides
from tests.support.apache_kafka import KafkaVersion

StepT = TypeVar("StepT")


class Restart(enum.Enum):
    """How both brokers are stopped between the two halves."""

    KILL = "kill"
    CLEAN = "clean"
    LOST_SNAPSHOTS = "lost snapshots"
    """A clean stop, after which the producers' snapshot files are deleted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """The settings and the restart that a group of games shares."""

    restart: Restart = Restart.KILL
    settings: Mapping[str, str] = field(default_factory=dict)
    """Configuration of Echoless."""


class Topic(NamedTuple):
    """A topic that games need, with one replica."""

    partitions: int
    configs: Mapping[str, str] = {}


class History(NamedTuple, Generic[StepT]):
    """Names one history. The same seed and number give the same one."""

    seed: int
    number: int
    recorded: Halves[StepT] | None = None
    """The steps to play instead of those that the seed would choose."""


class Table(NamedTuple):
    """The common ground of the games of a group."""

    label: str
    """Unique within a run, for names of topics and groups."""
    variant: Variant
    is_echoless: bool
    """False: the other broker is a second Apache Kafka, and no difference is expected."""


class Script(ABC, Generic[StepT]):
    """The random histories of one part of the protocol."""

    name: str
    differences: tuple[str, ...]
    """Names of the allowed differences; each has a row in docs/differences.md."""
    kafka_version = KafkaVersion.V3_9
    kafka_settings: Mapping[str, str]
    variants: Sequence[Variant]
    """Histories take turns with them, by number."""
    lanes: int
    """Games played at the same time."""
    together_max: int
    """Games that share a restart."""

    @abstractmethod
    def games(self, histories: Sequence[History[StepT]], table: Table) -> Sequence[Game[StepT]]:
        """Makes the games of these histories, which are played between the same two restarts."""

    @abstractmethod
    def topics(self, games: Sequence[Game[StepT]]) -> Mapping[str, Topic]:
        """The topics that these games need, by name."""

    async def wait_until_ready(self, sides: Sides) -> None:
        """Returns when both brokers serve what the script asks for, besides topics."""

    def variant_of(self, number: int) -> Variant:
        """The variant that this history is played under."""
        return self.variants[number % len(self.variants)]

    def numbers_of_one_variant(self, count: int) -> Sequence[int]:
        """Numbers of histories that need one restart in all."""
        return range(0, count * len(self.variants), len(self.variants))
