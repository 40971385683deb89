"""What a scenario asks of a producer, and what it keeps of its answers.

A record's value is its number in decimal, so that what was stored can be counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, Protocol

REQUEST_TIMEOUT_MS: Final = 1000
"""How long a producer waits for an answer before it sends again; no client takes less."""
WAIT_S: Final = 20.0


class Place(NamedTuple):
    """The place a record was sent to."""

    topic: str
    partition: int
    number: int


class Acknowledgement(NamedTuple):
    place: Place
    offset: int
    """-1: the broker did not say."""


@dataclass(slots=True)
class Deliveries:
    """What one producer was given, and what became of it, over all its openings."""

    sent: list[Place] = field(default_factory=list)
    acknowledged: list[Acknowledgement] = field(default_factory=list)
    failed: list[tuple[Place, str]] = field(default_factory=list)
    fatal: str | None = None
    """Why the producer cannot go on; it takes no further record."""

    @property
    def open_count(self) -> int:
        """Records of which nothing is known yet."""
        return len(self.sent) - len(self.acknowledged) - len(self.failed)

    @property
    def failures(self) -> dict[str, int]:
        """Error names and how many records failed with each."""
        return dict(Counter(error for _, error in self.failed))


class Client(Protocol):
    """One producer. Single owner: one thread."""

    name: str
    deliveries: Deliveries
    batches_under_way: int
    """How many batches of one partition it sends without waiting for an answer."""
    goes_on_behind_a_lost_answer: bool
    """Whether it finds the request of an answer by its id, not by the order of the answers.

    It then goes on using a connection in which an answer is overdue.
    """

    def open(self, bootstrap_servers: str) -> None:
        """A new producer, with a producer id of its own once it sends."""
        ...

    def send(self, topic: str, partition: int, numbers: Sequence[int]) -> None:
        """Hands over records that shall make one batch; does not wait for an answer."""
        ...

    def wait(self, timeout_s: float = WAIT_S) -> None:
        """Until everything sent was acknowledged or failed. Raises `TimeoutError`."""
        ...

    def close(self) -> None:
        """The producer ends; what is under way is given up."""
        ...

    def end(self) -> None:
        """Frees what the client holds beyond its producer."""
        ...
