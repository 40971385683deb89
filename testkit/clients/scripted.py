"""The scripted producer as a client: every batch as it was given, up to six in flight.

It does what the protocol requires of a producer and no more, in rounds: it waits for the answers to
everything in flight; batches that were not acknowledged are resent, in order and with the same
numbers, over a new connection if an answer was missing. So it shows what the broker does, not what
a client hides.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Final

from echoless.client.answers import Meaning, PartitionProduceResponse
from echoless.client.security import NO_SECURITY, Login, Security
from echoless.protocol.errors import ErrorCode
from echoless.protocol.sasl.mechanism import Mechanism
from echoless.testkit.clients.client import (
    PASSWORD,
    REQUEST_TIMEOUT_MS,
    WAIT_S,
    Deliveries,
    DeliveryReport,
    RecordKey,
)
from echoless.testkit.leaders import LeaderCache, LeaderNotAvailableError
from echoless.testkit.scripted_producer import NoAnswerError, ScriptedBatch, ScriptedProducer

_BACK_OFF_S: Final = 0.05
_EPOCH_BUMPED: Final = frozenset({Meaning.UNKNOWN_PRODUCER})
"""Answers after which it continues under its next epoch, from sequence 0."""
_SENT_AGAIN: Final = frozenset({Meaning.AGAIN, Meaning.AGAIN_ELSEWHERE, Meaning.OUT_OF_ORDER})


class Scripted:
    """A producer whose `identity` and `sequences` can be set, to resume or to impersonate another."""

    name: str = "scripted"
    batches_under_way: int = 6
    goes_on_behind_a_lost_answer: bool = True

    def __init__(self, *, request_timeout_ms: int = REQUEST_TIMEOUT_MS // 2) -> None:
        self.deliveries = Deliveries()
        self.identity: tuple[int, int] | None = None
        """Producer id and epoch."""
        self.sequences: dict[tuple[str, int], int] = {}
        """The next sequence of each partition."""
        self._timeout_s = request_timeout_ms / 1000
        self._security = NO_SECURITY
        self._leaders: LeaderCache | None = None
        self._connections: dict[str, ScriptedProducer] = {}
        self._open: list[ScriptedBatch] = []
        """Batches sent and not acknowledged, oldest first."""

    def open(
        self, bootstrap_servers: str, user: str | None = None, *, is_patient: bool = False
    ) -> None:
        """Opens a producer with a new id; setting `identity` afterwards makes it another's.

        `is_patient` changes nothing: it looks for answers, and resends, only in `wait`.
        """
        del is_patient
        self._security = NO_SECURITY
        if user is not None:
            login = Login(mechanism=Mechanism.PLAIN, user=user, password=PASSWORD)
            self._security = Security(login=login)
        self._leaders = LeaderCache(bootstrap_servers, self._security)
        self.sequences = {}
        self.identity = None

    def send(self, topic: str, partition: int, numbers: Sequence[int]) -> None:
        """Sends one batch at once."""
        if self.identity is None:
            self.identity = self._leaders_known().init_producer_id(), 0
        where = topic, partition
        values = tuple(b"%d" % number for number in numbers)
        base_sequence = self.sequences.get(where, 0)
        batch = ScriptedBatch(topic, partition, *self.identity, base_sequence, values)
        self.sequences[where] = base_sequence + len(values)
        self.deliveries.sent += _places(batch)
        self._open.append(batch)
        self._transmit(batch)

    def wait(self, timeout_s: float = WAIT_S) -> None:
        """Repeats rounds of answers and resends until nothing is open."""
        deadline = time.monotonic() + timeout_s
        while True:
            wishes = self._collect()
            if not self._open:
                return
            if time.monotonic() > deadline:
                raise TimeoutError(f"scripted: no answer to {len(self._open)} batches")
            if wishes & _EPOCH_BUMPED:
                self.bump_epoch()
            elif wishes:
                # A timeout was itself a wait; an answer may be repeated at once.
                time.sleep(_BACK_OFF_S)
            self._send_again()

    def close(self) -> None:
        self._drop_connections()
        for batch in self._open:
            self.deliveries.failed += [(place, "CLOSED") for place in _places(batch)]
        self._open = []

    def end(self) -> None:
        self.close()

    def _leaders_known(self) -> LeaderCache:
        assert self._leaders is not None, "open first"
        return self._leaders

    def _collect(self) -> set[Meaning]:
        """Reads every answer that comes in time; returns what the others call for."""
        wishes: set[Meaning] = set()
        deadline = time.monotonic() + self._timeout_s
        for connection in list(self._connections.values()):
            while connection.under_way:
                try:
                    batch, answer = connection.receive(timeout_s=deadline - time.monotonic())
                except NoAnswerError:
                    self._drop(connection)
                    break
                wishes |= self._take(batch, answer)
        return wishes

    def _take(self, batch: ScriptedBatch, answer: PartitionProduceResponse) -> set[Meaning]:
        meaning = answer.meaning
        if meaning in (Meaning.STORED, Meaning.REPEAT):
            self._open.remove(batch)
            self._acknowledge(batch, answer)
        elif meaning in _SENT_AGAIN or meaning in _EPOCH_BUMPED:
            return {meaning}
        else:
            self._open.remove(batch)
            name = ErrorCode(answer.error_code).name
            self.deliveries.failed += [(place, name) for place in _places(batch)]
        return set()

    def _acknowledge(self, batch: ScriptedBatch, answer: PartitionProduceResponse) -> None:
        self.deliveries.acknowledged += [
            DeliveryReport(place, -1 if answer.base_offset < 0 else answer.base_offset + index)
            for index, place in enumerate(_places(batch))
        ]

    def bump_epoch(self) -> None:
        """Continues with the same id under its next epoch: every open batch is renumbered from 0."""
        assert self.identity is not None
        producer_id, epoch = self.identity
        self.identity = producer_id, epoch + 1
        self.sequences = {}
        for index, batch in enumerate(self._open):
            where = batch.topic, batch.partition
            base_sequence = self.sequences.get(where, 0)
            self.sequences[where] = base_sequence + len(batch.values)
            self._open[index] = batch._replace(
                producer_epoch=epoch + 1, base_sequence=base_sequence
            )

    def _send_again(self) -> None:
        self._leaders_known().forget()
        for batch in self._open:
            self._transmit(batch)

    def _transmit(self, batch: ScriptedBatch) -> None:
        """Sends to the leader, if it is known; a failure counts as a lost request."""
        try:
            address = self._leaders_known().address(batch.topic, batch.partition)
            connection = self._connections.get(address)
            if connection is None:
                connection = self._connections[address] = ScriptedProducer.open(
                    address, self._security
                )
            connection.send(batch)
        except (NoAnswerError, LeaderNotAvailableError):
            self._drop_connections()
            time.sleep(_BACK_OFF_S)

    def _drop(self, connection: ScriptedProducer) -> None:
        del self._connections[connection.address]
        connection.close()

    def _drop_connections(self) -> None:
        for connection in list(self._connections.values()):
            self._drop(connection)


def _places(batch: ScriptedBatch) -> list[RecordKey]:
    return [RecordKey(batch.topic, batch.partition, int(value)) for value in batch.values]
