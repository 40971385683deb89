"""TxnOffsetCommit (28), versions 0-5: a group's positions become part of a transaction, and are seen once it is committed.

v2 (KIP-320): leader epochs. v3 (KIP-447): the member that has read, and its generation. v3 is flexible. v4 (KIP-890):
TRANSACTION_ABORTABLE. v5: adds the group's partition of `__consumer_offsets` to the transaction; before, AddOffsetsToTxn has.

As in Kafka, in this order, the first that fails answers:

    rights on transactional id, group and topics; topics that exist; whether this broker coordinates the group
    the log: the epoch of the producer, if the group's partition knows a newer one (Kafka 4)
    the coordinator of the transaction, unless it is open on the group's partition (`partitions/core/membership.py`)
    the group: members and generations, then the metadata of single partitions

What the coordinator of the transaction has said may be out of date once the group is asked: so its word is looked at again in
the step of the append, and 51 lets the client try again. Until the group is asked it keeps its place among the commits of its
connection.

Invariant: offsets are appended in a transaction only if its coordinator has said yes since the last marker of its producer.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from echoless.broker.handlers import permits
from echoless.broker.handlers.apis import declared
from echoless.broker.handlers.group_answers import with_rows
from echoless.broker.handlers.merged_responses import Rows
from echoless.broker.handlers.permits import denied
from echoless.broker.handlers.refusals import Refusal, refused_partitions
from echoless.broker.handlers.served import Names, Served
from echoless.broker.handlers.transaction_notes import note_offsets
from echoless.broker.handlers.transaction_rows import code_of_version
from echoless.broker.network.denial import Denial
from echoless.broker.network.order import LanePlace
from echoless.broker.network.request import Answer, Outcome, Request
from echoless.broker.network.sharer import sharer_of
from echoless.broker.network.turns import ROWS_PER_TURN, for_client, work_in_turns
from echoless.broker.partitions.core.membership import Membership, Question, judge, question_about
from echoless.coordinators.groups.answers import OffsetCommitAnswer
from echoless.coordinators.groups.config import COMMIT_PARTITIONS_MAX
from echoless.coordinators.groups.prepared_commit import prepare
from echoless.coordinators.groups.requests import (
    NO_GENERATION,
    NO_LEADER_EPOCH,
    CommittedPartition,
    TransactionalOffsetCommit,
)
from echoless.protocol.acl import AclOperation, ResourceType
from echoless.protocol.errors import ErrorCode, KafkaError
from echoless.protocol.native.transactions import TransactionAnswered, TransactionAsk
from echoless.protocol.state_records.transaction_records import TransactionPartition
from echoless.protocol.typed_requests import typed

if TYPE_CHECKING:
    from echoless.broker.authorization.access import Rights
    from echoless.broker.partitions.partition import Partition
    from echoless.broker.services import Services
    from echoless.broker.state_topics.held_requests import Answered
    from echoless.coordinators.groups.answers import GroupAnswer

API = declared(__name__)

ADDS_FROM: Final = 5
"""The first version that adds the group's partition to the transaction."""
_ABORTABLE_FROM: Final = 4
_KNOWS_LOADING_FROM: Final = 2
"""Clients that send older versions may crash on COORDINATOR_LOAD_IN_PROGRESS (KAFKA-7296)."""
_CODES: Final = {
    ErrorCode.PRODUCER_FENCED: ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.NETWORK_EXCEPTION: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
}
"""Codes of a transaction's coordinator that this API does not have."""


class TxnOffsetCommitRequest(NamedTuple):
    """The fields of all versions."""

    transactional_id: str
    group_id: str
    producer_id: int
    producer_epoch: int
    topics: tuple[Any, ...]
    generation_id: int = NO_GENERATION
    member_id: str = ""
    group_instance_id: str | None = None


class CommittedRow(NamedTuple):
    """The offset of a partition."""

    partition_index: int
    committed_offset: int
    committed_metadata: str | None
    committed_leader_epoch: int = NO_LEADER_EPOCH


class _Judged:
    """The partitions of a request, those that exist apart from the others."""

    def __init__(self) -> None:
        self.wanted: dict[tuple[str, int], CommittedPartition] = {}
        self.order: dict[str, dict[int, ErrorCode]] = {}

    def fields(self, codes: tuple[ErrorCode, ...], version: int) -> dict[str, Any]:
        """The response, with the group's codes for the partitions that exist."""
        for (name, index), code in zip(self.wanted, codes, strict=True):
            self.order[name][index] = code
        topics = [
            {
                "name": name,
                "partitions": [
                    {"partition_index": index, "error_code": _of_version(code, version)}
                    for index, code in indexes.items()
                ],
            }
            for name, indexes in self.order.items()
        ]
        return with_rows(
            {"topics": topics}, [index for one in self.order.values() for index in one]
        )


def _of_version(code: ErrorCode, version: int) -> ErrorCode:
    if code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS and version < _KNOWS_LOADING_FROM:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    return code_of_version(code, version, fenced_from=0, abortable_from=_ABORTABLE_FROM)


def handle(request: Request, services: Services) -> Outcome:
    """Answers once the offsets are stored on all in-sync replicas."""
    return _handle(request.peer.order.commits.enter(), request, services)


async def _handle(place: LanePlace, request: Request, services: Services) -> Answer:
    body, judged = typed(TxnOffsetCommitRequest, request.body), _Judged()
    version, host = request.version, request.peer.host
    with place:
        await work_in_turns(_sort(body.topics, services, judged))
        partitions = tuple(judged.wanted.values())
        answered = None
        if partitions:
            try:
                answered = await _ask(place, body, request, services, partitions)
            except KafkaError as error:
                answered = OffsetCommitAnswer((error.code,) * len(partitions))
    answer: Any = await answered if isinstance(answered, Awaitable) else answered
    codes = () if answer is None else answer.error_codes
    if codes:
        note_offsets(services, request, body, codes)
    if len(codes) <= ROWS_PER_TURN:
        return judged.fields(codes, version)
    return await for_client(host, partial(judged.fields, codes, version))


def _sort(topics: tuple[Any, ...], services: Services, judged: _Judged) -> Iterator[None]:
    """Looks at one partition at a time; one that is listed twice gets the last offset."""
    for topic in topics:
        name = topic.name
        known = services.registry.topics.get(name)
        indexes = judged.order.setdefault(name, {})
        for entity in topic.partitions:
            row = typed(CommittedRow, entity)
            index = row.partition_index
            indexes[index] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            if known is not None and index in known.assignment:
                judged.wanted[name, index] = CommittedPartition(
                    name,
                    index,
                    row.committed_offset,
                    row.committed_leader_epoch,
                    row.committed_metadata or "",
                )
            yield


async def _ask(
    place: LanePlace,
    body: TxnOffsetCommitRequest,
    request: Request,
    services: Services,
    partitions: tuple[CommittedPartition, ...],
) -> Answered[GroupAnswer]:
    """The group's answer, now or later. Raises `KafkaError` with the code of all partitions."""
    shard = services.groups.shard_of(body.group_id)
    if shard is None:
        message = f"group {body.group_id!r} is coordinated by another broker"
        raise KafkaError(ErrorCode.NOT_COORDINATOR, message)
    may_append = await _verify(body, request.version, services, shard.partition)
    commit = TransactionalOffsetCommit(
        group_id=body.group_id,
        producer_id=body.producer_id,
        producer_epoch=body.producer_epoch,
        partitions=partitions,
        generation_id=body.generation_id,
        member_id=body.member_id,
        group_instance_id=body.group_instance_id,
        sharer=sharer_of(request.peer),
        may_append=may_append,
    )
    if ROWS_PER_TURN < len(partitions) <= COMMIT_PARTITIONS_MAX:
        work = partial(prepare, commit, services.clock.wall_ms())
        commit = await for_client(request.peer.host, work)
    await place.come()
    return services.groups.ask(commit)


async def _verify(
    body: TxnOffsetCommitRequest, version: int, services: Services, partition: Partition
) -> Callable[[], bool]:
    """Returns what has to hold when the offsets are appended. Raises `KafkaError` if they are not part of the transaction."""
    producers = partition.log.producers
    if body.producer_id < 0:
        message = f"producer id {body.producer_id} is that of no transaction"
        raise KafkaError(ErrorCode.INVALID_PRODUCER_ID_MAPPING, message)
    entry = producers.get(body.producer_id)
    if entry is not None and body.producer_epoch < entry.producer_epoch:
        message = f"producer id {body.producer_id} has epoch {entry.producer_epoch} by now"
        raise KafkaError(ErrorCode.INVALID_PRODUCER_EPOCH, message)
    question, binding = question_about(producers, body), services.produce.binding
    if question is None:
        if binding is None or binding.is_confirmed(body.producer_id, body.transactional_id):
            return partial(_is_as_before, partition, body)
        question = Question(producers.last_marker(body.producer_id))
    if services.produce.ask is None:
        message = "transactions are not served yet"
        raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, message)
    is_add = version >= ADDS_FROM
    answered = services.produce.ask(
        TransactionAsk(
            transactional_id=body.transactional_id,
            producer_id=body.producer_id,
            producer_epoch=body.producer_epoch,
            is_add=is_add,
            client_version=2 if is_add else 0,
            partitions=(
                TransactionPartition(partition.topic, partition.index, partition.topic_id.bytes),
            ),
        )
    )
    if not isinstance(answered, TransactionAnswered):
        answered = await answered
    code = answered.error_code
    if code is ErrorCode.NONE:
        (code,) = answered.partition_codes
    if code is not ErrorCode.NONE:
        message = f"the coordinator of the transactional id has answered {code.name}"
        raise KafkaError(_CODES.get(code, code), message)
    if binding is not None:
        binding.confirm(body.producer_id, body.transactional_id)
    return partial(_still_holds, partition, body, question, answered.number)


def _is_as_before(partition: Partition, body: TxnOffsetCommitRequest) -> bool:
    """Whether the transaction is still open; a producer whose epoch has become old meanwhile is refused by the log."""
    return question_about(partition.log.producers, body) is None


def _still_holds(
    partition: Partition, body: TxnOffsetCommitRequest, question: Question, number: int
) -> bool:
    """Whether no marker has come since the coordinator was asked, and none is missing here."""
    found = judge(partition.log.producers, body, question, number)
    return found is Membership.APPEND


def refuse(refusal: Refusal, _services: Services) -> Answer:
    """The error in the row of each refused partition."""
    return {"topics": refused_partitions(refusal)}


_READ_ALL: Final = permits.group_and_topics(AclOperation.READ, AclOperation.READ)


def permit(request: Request, rights: Rights, services: Services) -> Denial | None:
    """Needs Write on the transactional id, Read on the group, and Read on each topic."""
    write, kind = AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID
    if not rights.may(write, kind, request.body.transactional_id):
        return Denial(denied(write, kind))
    return _READ_ALL(request, rights, services)


SERVED = Served(
    API,
    handle,
    refuse,
    Names.PARTITIONS,
    Rows("topics", "partitions"),
    permit=permits.on_topics(AclOperation.READ, permit),
)
