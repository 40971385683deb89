"""AlterPartitionReassignments (45), version 0: moves partitions to other brokers (KIP-455).

A partition is answered once the request is recorded in the topic's node; the controller completes it
(`broker/controller/reassignment.py`), and ListPartitionReassignments lists those in progress.
Any broker accepts the request. Null replicas cancel a running reassignment; another target replaces it.
Added brokers must be alive, those that stay need not be: that is how a lost machine is replaced. The
timeout is ignored.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from echoless.broker.controller.reassignment import origin_of, reassign, still_as_decided
from echoless.broker.handlers import permits
from echoless.broker.handlers.apis import declared
from echoless.broker.handlers.merged_responses import Rows
from echoless.broker.handlers.refusals import Refusal, refused_partitions
from echoless.broker.handlers.served import Names, Served
from echoless.broker.handlers.topic_rows import grouped
from echoless.broker.network.denial import everything
from echoless.broker.network.request import Answer, Request
from echoless.broker.network.turns import ROWS_PER_TURN, ManyRows, awaited_in_turns
from echoless.broker.tree.node_tree import ConnectionLostError, MultiFailedError
from echoless.protocol.acl import AclOperation
from echoless.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from echoless.broker.metadata.topic import Topic
    from echoless.broker.services import Services

API = declared(__name__)

_LOST_RACES_MAX: Final = 10
"""Races lost to ISR changes and other requests before the client is asked to try again."""


async def handle(request: Request, services: Services) -> Answer:
    """One row per topic and partition, in the order of the request."""
    topics = request.body.topics
    rows = (_row(services, topic.name, one) for topic in topics for one in topic.partitions)
    answer = await awaited_in_turns(
        rows,
        lambda found: {
            "error_code": ErrorCode.NONE,
            "error_message": None,
            "responses": grouped(topics, iter(found)),
        },
    )
    return ManyRows(answer) if len(topics) > ROWS_PER_TURN else answer


async def _row(services: Services, topic: str, wanted: Any) -> dict[str, Any]:
    row = {"partition_index": wanted.partition_index, "error_code": ErrorCode.NONE}
    replicas = None if wanted.replicas is None else tuple(int(one) for one in wanted.replicas)
    try:
        await _reassign(services, topic, wanted.partition_index, replicas)
    except KafkaError as error:
        return {**row, "error_code": error.code, "error_message": error.message or None}
    return {**row, "error_message": None}


async def _reassign(
    services: Services, name: str, partition: int, replicas: tuple[int, ...] | None
) -> None:
    for _ in range(_LOST_RACES_MAX):
        try:
            await _try_to_reassign(services, name, partition, replicas)
        except MultiFailedError:
            continue  # decide again from the present state
        except ConnectionLostError as error:
            raise KafkaError(
                ErrorCode.REQUEST_TIMED_OUT, f"it is not known whether the change was made: {error}"
            ) from error
        return
    raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, f"{name}-{partition} changes all the time")


async def _try_to_reassign(
    services: Services, name: str, partition: int, replicas: tuple[int, ...] | None
) -> None:
    topic = services.registry.topics.get(name)
    if topic is None or partition not in topic.assignment:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{name}-{partition} does not exist")
    if replicas is not None:
        _check_target(services, topic, partition, replicas)
    elif partition not in topic.reassignments:
        raise KafkaError(
            ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, f"{name}-{partition} is not being reassigned"
        )
    target = origin_of(topic, partition) if replicas is None else replicas
    moved, moving = reassign(topic, partition, target)
    if (moved, moving) != (topic.assignment[partition], topic.reassignments.get(partition)):
        await services.registry.change_assignment(
            name, partition, moved, moving, still_as_decided(topic, partition)
        )


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
