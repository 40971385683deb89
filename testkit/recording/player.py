"""Plays the batches of a recording to a cluster, one after the other, and compares its decisions with the recorded ones.

A batch is sent once the one before it is answered, so that the cluster receives them in the order of the recording.
The numbers are those of the recording, except producer ids and epochs that only a coordinator may give:

* An idempotent producer gets an id of this cluster and keeps its epochs and sequences; or it keeps its id, too.
* A transactional producer has the session, the ends and the generation of the protocol of the recorded one. Its ids and
  epochs are those that this cluster gives at the same points. A transaction that took too long is ended by a new session.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Iterable, Mapping
from typing import Any, Final, NamedTuple

from echoless.client.answers import error_name
from echoless.client.cluster import Cluster, NoLeaderError, parse_addresses
from echoless.client.connection_errors import ConnectionFailedError
from echoless.client.coordinator import Backoff
from echoless.client.errors import ProducerError
from echoless.client.pipelined_connection import PipelinedConnection
from echoless.client.produce_request import NO_TRANSACTION, PartitionBatch, ProduceTerms
from echoless.client.producer_ids import new_identity_within
from echoless.client.receivers import fail_future
from echoless.client.security import NO_SECURITY, Security
from echoless.client.sequenced_batch import Identity
from echoless.client.settings import Settings
from echoless.client.transactions.errors import TransactionError
from echoless.client.transactions.session import TransactionalSession
from echoless.protocol.errors import ErrorCode
from echoless.protocol.produce_response import ProducedRow
from echoless.testkit.recording.batches import batch_for
from echoless.testkit.recording.file import RecordingError
from echoless.testkit.recording.steps import (
    PlayableBatch,
    PlayableEnd,
    PlayableSession,
    PlayableStep,
)

_TIMEOUT_S: Final = 30.0
_FIRST_GENERATION_MAX: Final = 11
"""The newest version of Produce with which a leader does not put the partition into the transaction."""
_NO_PRODUCER: Final = Identity(-1, -1)
_LATEST: Final = -1
"""The timestamp by which ListOffsets names the end."""
_AGAIN: Final = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.CONCURRENT_TRANSACTIONS,
    }
)
"""Codes after which a batch is sent again: nothing was stored, and nothing was decided."""


class PlayedBatch(NamedTuple):
    """A batch, and what this cluster has decided about it."""

    batch: PlayableBatch
    """The batch, without its records."""
    producer: Identity
    """The id and epoch in this cluster."""
    outcome: str
    """`append`, `duplicate` or the name of an error."""
    base_offset: int
    """-1 if it was refused, or the broker does not say."""
    message: str | None

    @property
    def differs(self) -> bool:
        """Whether the recording has another decision."""
        return self.batch.outcome not in {None, self.outcome}


class _Row:
    """Receives the answer to one batch."""

    def __init__(self) -> None:
        self.future: asyncio.Future[ProducedRow] = asyncio.get_running_loop().create_future()

    def take(self, row: ProducedRow) -> None:
        self.future.set_result(row)

    def fail(self, error: Exception) -> None:
        fail_future(self.future, error)


class _Session:
    """The session of a transactional id in this cluster, in the place of one in the recording."""

    def __init__(self, cluster: Cluster, begun: PlayableSession, settings: Settings) -> None:
        self.begun = begun
        self.session = TransactionalSession(cluster, begun.transactional_id, settings)
        self.added: set[tuple[str, int]] = set()

    async def begin(self) -> None:
        await self.session.begin()
        self.session.raises_epoch = self.session.raises_epoch and self.begun.raises_epoch

    @property
    def terms(self) -> ProduceTerms:
        name = self.begun.transactional_id
        return ProduceTerms(name) if self.session.raises_epoch else _first_generation(name)

    async def add(self, topic: str, partition: int) -> None:
        """Puts the partition into the transaction, where leaders do not."""
        if not self.session.raises_epoch and (topic, partition) not in self.added:
            await self.session.add_partitions([(topic, partition)])
            self.added.add((topic, partition))

    async def end(self, *, is_commit: bool) -> None:
        self.added.clear()
        session, raised = self.session, self.begun.raises_epoch
        if not is_commit:
            await session.abort(keeps_epoch=not raised)
            return
        await session.commit()
        if raised and not session.raises_epoch:
            await session.renew()


def _first_generation(transactional_id: str) -> ProduceTerms:
    """The terms of a producer of the first generation."""
    return ProduceTerms(transactional_id, _FIRST_GENERATION_MAX)


class Player:
    """Plays steps to one cluster. Use it in one event loop, and `close` it."""

    def __init__(
        self,
        bootstrap_servers: str,
        security: Security = NO_SECURITY,
        *,
        keeps_ids: bool = False,
        keeps_times: bool = False,
    ) -> None:
        """`keeps_ids`: producers that are idempotent only keep their ids. `keeps_times`: waits as long between steps.

        Raises `ValueError` for bootstrap servers that are none.
        """
        self._cluster = Cluster(
            parse_addresses(bootstrap_servers),
            timeout_s=_TIMEOUT_S,
            auto_create_topics=False,
            security=security,
        )
        self._settings = Settings(security=security, delivery_timeout_s=_TIMEOUT_S)
        self._keeps_ids = keeps_ids
        self._keeps_times = keeps_times
        self._ids: dict[int, int] = {}
        """Producer ids of the recording, without a transactional id, and those of this cluster."""
        self._sessions: dict[str, _Session] = {}
        self._identities: dict[tuple[int, int], Identity] = {}
        """Ids and epochs of transactional producers of the recording, and those of this cluster."""
        self._ends: dict[tuple[str, int], int] = {}
        """The offset behind what was appended to each partition: an acknowledged batch below it was stored before."""
        self.failures: list[str] = []
        """The refusals of this cluster's coordinators."""

    async def close(self) -> None:
        """Closes the connections."""
        await self._cluster.close()

    async def create_topics(self, partitions: Mapping[str, int]) -> list[str]:
        """Creates the topics that are missing, with so many partitions; returns their names.

        Raises `RecordingError` if one has too few partitions, or cannot be created.
        """
        return [name for name, count in partitions.items() if await self._create(name, count)]

    async def play(self, steps: Iterable[PlayableStep]) -> AsyncIterator[PlayedBatch]:
        """Yields each batch as it is answered. Raises `RecordingError` if a broker goes away, or is not found."""
        began, first_ms = time.monotonic(), None
        for step in steps:
            first_ms = step.time_ms if first_ms is None else first_ms
            if self._keeps_times:
                due = began + (step.time_ms - first_ms) / 1000
                await asyncio.sleep(max(0.0, due - time.monotonic()))
            if isinstance(step, PlayableBatch):
                played = await self._play_batch(step)
                yield played._replace(batch=step._replace(records=None))
            else:
                await self._play_transaction(step)

    # --- transactions ---

    async def _play_transaction(self, step: PlayableSession | PlayableEnd) -> None:
        name = step.transactional_id
        try:
            if isinstance(step, PlayableSession):
                await self._begin(step)
            elif (session := self._sessions.get(name)) is None:
                return  # of a transaction from before the recording
            elif step.is_timed_out:
                await _Session(self._cluster, session.begun, self._settings).begin()
            else:
                await session.end(is_commit=step.is_commit)
        except TransactionError as error:
            self.failures.append(str(error))

    async def _begin(self, begun: PlayableSession) -> _Session:
        session = _Session(self._cluster, begun, self._settings)
        await session.begin()
        self._sessions[begun.transactional_id] = session
        self._identities[begun.producer] = session.session.identity
        return session

    async def _identity(self, batch: PlayableBatch) -> tuple[Identity, ProduceTerms]:
        """The producer of a batch, and its terms; its partition is in the transaction then."""
        name = batch.transactional_id
        if name is None:
            return await self._idempotent(batch), NO_TRANSACTION
        session = self._sessions.get(name)
        if session is None:  # it was begun before the recording
            raises_epoch = False
            session = await self._begin(PlayableSession(0, name, batch.producer, raises_epoch))
        identity = self._identities.setdefault(batch.producer, session.session.identity)
        if identity != session.session.identity:  # of an earlier instance, or a late one
            return identity, _first_generation(name)
        await session.add(batch.topic, batch.partition)
        return identity, session.terms

    async def _idempotent(self, batch: PlayableBatch) -> Identity:
        producer_id, epoch = batch.producer
        if producer_id < 0:
            return _NO_PRODUCER
        if self._keeps_ids:
            return Identity(producer_id, epoch)
        if producer_id not in self._ids:
            self._ids[producer_id] = await self._new_id()
        return Identity(self._ids[producer_id], epoch)

    async def _new_id(self) -> int:
        try:
            identity = await new_identity_within(self._cluster, self._settings, random.Random())  # noqa: S311  jitter
        except ProducerError as error:
            raise RecordingError(str(error)) from error
        return identity.producer_id

    # --- batches ---

    async def _play_batch(self, batch: PlayableBatch) -> PlayedBatch:
        try:
            producer, terms = await self._identity(batch)
        except TransactionError as error:
            code = error_name(error.error_code) if error.error_code else "UNANSWERED"
            return PlayedBatch(batch, _NO_PRODUCER, code, -1, str(error))
        data = batch_for(batch, *producer)
        row = await self._send(PartitionBatch(batch.topic, batch.partition, data), terms)
        return self._judged(batch, producer, row)

    def _judged(self, batch: PlayableBatch, producer: Identity, row: ProducedRow) -> PlayedBatch:
        if row.error_code:
            name = error_name(row.error_code)
            return PlayedBatch(batch, producer, name, -1, row.error_message)
        place, base_offset = (batch.topic, batch.partition), row.base_offset
        is_new = base_offset >= self._ends.get(place, 0)
        if is_new:
            self._ends[place] = base_offset + batch.fields["last_offset_delta"] + 1
        outcome = "append" if is_new else "duplicate"
        return PlayedBatch(batch, producer, outcome, base_offset, None)

    async def _send(self, batch: PartitionBatch, terms: ProduceTerms) -> ProducedRow:
        """The leader's answer. A batch that it does not judge is sent again. Raises `RecordingError`."""
        place, backoff, reason = f"{batch.topic}-{batch.partition}", Backoff(), "no answer"
        try:
            async with asyncio.timeout(_TIMEOUT_S):
                while True:
                    try:
                        connection = await self._cluster.leader(batch.topic, batch.partition)
                        await self._look_up_end(connection, batch)
                        row = _Row()
                        connection.produce(
                            batch, row, timeout_ms=round(_TIMEOUT_S * 1000), terms=terms
                        )
                        answer = await row.future
                        if answer.error_code not in _AGAIN:
                            return answer
                        reason = error_name(answer.error_code)
                    except NoLeaderError as error:
                        if error.final_code:
                            raise RecordingError(str(error)) from error
                        reason = str(error)
                    await backoff.pause()
                    await self._cluster.refresh(batch.topic)
        except ConnectionFailedError as error:
            raise RecordingError(
                f"{place}: {error}, while a batch was on its way: whether that is stored is not known, so the replay ends"
            ) from error
        except TimeoutError as error:
            raise RecordingError(f"{place}: {reason}, for {_TIMEOUT_S:g} s") from error

    async def _look_up_end(self, connection: PipelinedConnection, batch: PartitionBatch) -> None:
        """Asks for the end of a partition before the first batch that is sent there."""
        place = batch.topic, batch.partition
        if place in self._ends:
            return
        rows = [{"partition_index": batch.partition, "timestamp": _LATEST}]
        topics = [{"name": batch.topic, "partitions": rows}]
        fields = {"replica_id": -1, "isolation_level": 0, "topics": topics}
        answer = await connection.send("list_offsets", fields)
        (row,) = answer.topics[0].partitions
        if not row.error_code.value:
            self._ends[place] = row.offset
        elif row.error_code.value not in _AGAIN:
            name = f"{batch.topic}-{batch.partition}"
            raise RecordingError(f"{name}: its end: {row.error_code.name.upper()}")

    # --- topics ---

    async def _create(self, name: str, partitions: int) -> bool:
        try:
            found = await self._cluster.partition_count(name)
        except NoLeaderError as error:
            if error.final_code:
                raise RecordingError(str(error)) from error
        else:
            if found < partitions:
                raise RecordingError(
                    f"{name} has {found} partitions here, the recording names {partitions}: delete it, or add some"
                )
            return False
        new = {
            "name": name,
            "num_partitions": partitions,
            "replication_factor": -1,
            "assignments": [],
            "configs": [],
        }
        answer = await self._ask("create_topics", {"topics": [new], "timeout": 10_000})
        (result,) = answer.topics
        if result.error_code.value:
            said = result.error_message or result.error_code.name.upper()
            raise RecordingError(f"{name} cannot be created: {said}")
        return True

    async def _ask(self, api: str, fields: dict[str, Any]) -> Any:
        try:
            return await self._cluster.ask_any(api, fields)
        except NoLeaderError as error:
            raise RecordingError(str(error)) from error
