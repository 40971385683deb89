"""The interface of a producer in a scenario, and the record of its deliveries.

A record's value is its number in decimal, so that stored records can be counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, Protocol

REQUEST_TIMEOUT_MS: Final = 1000
"""The time a producer waits for an answer before it retries; no client accepts less."""
PATIENT_REQUEST_TIMEOUT_MS: Final = 45_000
"""The same of a patient producer, longer than a scenario waits for anything: only the end of its
connection makes it retry.
"""
WAIT_S: Final = 40.0
PASSWORD: Final = "correct-horse"  # noqa: S105 - of users who exist for one test


class RecordKey(NamedTuple):
    """The partition and offset of a record."""

    topic: str
    partition: int
    number: int


class DeliveryReport(NamedTuple):
    place: RecordKey
    offset: int
    """-1 if the broker did not say."""


@dataclass(slots=True)
class Deliveries:
    """Records given to one producer, and their outcomes, over all its openings."""

    sent: list[RecordKey] = field(default_factory=list)
    acknowledged: list[DeliveryReport] = field(default_factory=list)
    failed: list[tuple[RecordKey, str]] = field(default_factory=list)
    fatal: str | None = None
    """Why the producer cannot continue; it takes no further record."""

    @property
    def open_count(self) -> int:
        """Records without an outcome so far."""
        return len(self.sent) - len(self.acknowledged) - len(self.failed)

    @property
    def failures(self) -> dict[str, int]:
        """Error names and the number of records that failed with each."""
        return dict(Counter(error for _, error in self.failed))


class Client(Protocol):
    """One producer. Single owner: one thread."""

    name: str
    deliveries: Deliveries
    batches_under_way: int
    """Number of batches of one partition that it sends without waiting for an answer."""
    goes_on_behind_a_lost_answer: bool
    """Whether it matches answers to requests by id, not by order.

    It then continues to use a connection on which an answer is overdue.
    """

    def open(
        self, bootstrap_servers: str, user: str | None = None, *, is_patient: bool = False
    ) -> None:
        """Opens a new producer, which gets its own producer id when it sends.

        If the brokers ask for a log-in, it is that of `user`, by PLAIN with `PASSWORD`. A patient
        producer waits for its answers as long as the connection lasts.
        """
        ...

    def send(self, topic: str, partition: int, numbers: Sequence[int]) -> None:
        """Hands over records that are to form one batch; does not wait for an answer."""
        ...

    def wait(self, timeout_s: float = WAIT_S) -> None:
        """Waits until everything sent was acknowledged or has failed. Raises `TimeoutError`."""
        ...

    def close(self) -> None:
        """Closes the producer; requests in flight are abandoned."""
        ...

    def end(self) -> None:
        """Frees everything that the client holds besides its producer."""
        ...
