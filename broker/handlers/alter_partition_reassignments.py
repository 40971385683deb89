"""AlterPartitionReassignments (45), version 0: moves partitions to other brokers (KIP-455).

A partition is answered once the request is recorded in the topic's node; the controller completes it
(`broker/controller/reassignment.py`), and ListPartitionReassignments lists those in progress.
Any broker accepts the request. Null replicas cancel a running reassignment; another target replaces it.
Added brokers must be alive, those that stay need not be: that is how a lost machine is replaced. The
timeout is ignored.
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Any, Final

from echoless.broker.controller.reassignment import origin_of, reassign
from echoless.broker.handlers import permits
from echoless.broker.handlers.apis import declared
from echoless.broker.handlers.merged_responses import Rows
from echoless.broker.handlers.refusals import Refusal, refused_partitions
from echoless.broker.handlers.served import Names, Served
from echoless.broker.handlers.topic_rows import grouped
from echoless.broker.metadata.topic_nodes import RELOCATIONS_MAX
from echoless.broker.network.denial import everything
from echoless.broker.network.request import Answer, Request
from echoless.broker.network.turns import (
    ROWS_PER_TURN,
    ManyRows,
    awaited_in_turns,
    work_in_turns,
)
from echoless.broker.tree.node_tree import ConnectionLostError, MultiFailedError
from echoless.protocol.acl import AclOperation
from echoless.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from echoless.broker.metadata.topic import Relocation, Topic
    from echoless.broker.services import Services

API = declared(__name__)

_LOST_RACES_MAX: Final = 30
"""Races lost to ISR changes and other requests before the client is asked to try again."""


async def handle(request: Request, services: Services) -> Answer:
    """One row per topic and partition, in the order of the request."""
    topics = request.body.topics
    batches = (
        _Batch(services, topic.name, some).made()
        for topic in topics
        for some in _batches(topic.partitions)
    )
    answer = await awaited_in_turns(
        batches,
        lambda found: {
            "error_code": ErrorCode.NONE,
            "error_message": None,
            "responses": grouped(topics, chain.from_iterable(found)),
        },
    )
    rows = sum(max(len(topic.partitions), 1) for topic in topics)
    return ManyRows(answer) if rows > ROWS_PER_TURN else answer


def _batches(rows: Sequence[Any]) -> Iterator[list[Any]]:
    """The rows of a topic in order, as many at a time as one write may have; none names a partition twice."""
    some: dict[int, Any] = {}
    for row in rows:
        if row.partition_index in some or len(some) == RELOCATIONS_MAX:
            yield [*some.values()]
            some = {}
        some[row.partition_index] = row
    if some:
        yield [*some.values()]


class _Batch:
    """Rows of one topic that are decided and written together."""

    def __init__(self, services: Services, topic: str, rows: Sequence[Any]) -> None:
        self._services = services
        self._topic = topic
        self._rows = rows
        self._errors: dict[int, KafkaError] = {}
        """By partition, of the last decision."""
        self._relocations: dict[int, Relocation] = {}

    async def made(self) -> list[dict[str, Any]]:
        """The answers, once what can be done is written."""
        error = await self._make()
        return [self._answer(row.partition_index, error) for row in self._rows]

    async def _make(self) -> KafkaError | None:
        """Returns the error of all rows that have none of their own."""
        for _ in range(_LOST_RACES_MAX):
            try:
                await self._services.registry.change_assignments(self._topic, self._decide)
            except MultiFailedError:
                continue  # decide again from the present state
            except ConnectionLostError as error:
                return KafkaError(
                    ErrorCode.REQUEST_TIMED_OUT,
                    f"it is not known whether the change was made: {error}",
                )
            except KafkaError as error:
                return error
            return None
        return KafkaError(ErrorCode.REQUEST_TIMED_OUT, f"{self._topic} changes all the time")

    def _answer(self, partition: int, error: KafkaError | None) -> dict[str, Any]:
        error = self._errors.get(partition, error)
        return {
            "partition_index": partition,
            "error_code": ErrorCode.NONE if error is None else error.code,
            "error_message": (error and error.message) or None,
        }

    async def _decide(self, topic: Topic) -> Mapping[int, Relocation]:
        self._errors, self._relocations = {}, {}
        await work_in_turns(self._decisions(topic))
        return self._relocations

    def _decisions(self, topic: Topic) -> Iterator[None]:
        for row in self._rows:
            partition = row.partition_index
            try:
                wanted = _relocation(self._services, topic, partition, row.replicas)
            except KafkaError as error:
                self._errors[partition] = error
            else:
                now = topic.assignment[partition], topic.reassignments.get(partition)
                if wanted != now:
                    self._relocations[partition] = wanted
            yield


def _relocation(
    services: Services, topic: Topic, partition: int, replicas: Sequence[int] | None
) -> Relocation:
    """The replicas that a row asks for: with null those from before. Raises `KafkaError`."""
    if partition not in topic.assignment:
        raise KafkaError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{topic.name}-{partition} does not exist"
        )
    if replicas is None:
        if partition not in topic.reassignments:
            raise KafkaError(
                ErrorCode.NO_REASSIGNMENT_IN_PROGRESS,
                f"{topic.name}-{partition} is not being reassigned",
            )
        return reassign(topic, partition, origin_of(topic, partition))
    target = tuple(int(one) for one in replicas)
    _check_target(services, topic, partition, target)
    return reassign(topic, partition, target)


def _check_target(
    services: Services, topic: Topic, partition: int, replicas: tuple[int, ...]
) -> None:
    """Raises `KafkaError` INVALID_REPLICA_ASSIGNMENT."""
    shown = f"the replicas {list(replicas)} of {topic.name}-{partition}"
    if not replicas:
        raise _invalid(f"{shown} are none")
    if len(set(replicas)) != len(replicas):
        raise _invalid(f"{shown} name a broker twice")
    live = services.cluster.brokers
    dead = [r for r in replicas if r not in origin_of(topic, partition) and r not in live]
    if dead:
        raise _invalid(f"{shown} add {dead}, alive are {sorted(live)}")


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)


def refuse(refusal: Refusal, _services: Services) -> Answer:
    """The error in the row of each refused partition; of a whole request, as in Kafka, also on top."""
    is_whole = refusal.is_refused is everything
    row = refusal.row if is_whole else {"error_code": ErrorCode.NONE, "error_message": None}
    return {**row, "responses": refused_partitions(refusal)}


SERVED = Served(
    API,
    handle,
    refuse,
    Names.PARTITIONS,
    Rows("responses", "partitions"),
    permit=permits.cluster(AclOperation.ALTER),
)
