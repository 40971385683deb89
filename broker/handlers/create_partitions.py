"""CreatePartitions (37), versions 0-3: adds partitions to existing topics.

The count is the new total. A topic is answered once its new partitions can accept records, so the
timeout is ignored. Keys may hash to other partitions afterwards; as in Kafka, that is up to the
client.

v1: no change. v2: flexible. v3 (KIP-599): 89 for what a quota does not allow (`mutations.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from echoless.broker.handlers import permits
from echoless.broker.handlers.apis import declared
from echoless.broker.handlers.merged_responses import Rows
from echoless.broker.handlers.mutations import Mutations
from echoless.broker.handlers.refusals import Refusal
from echoless.broker.handlers.repetition import repeated
from echoless.broker.handlers.served import Names, Served
from echoless.broker.network.request import Answer, Request
from echoless.broker.network.turns import awaited_in_turns
from echoless.protocol.acl import AclOperation
from echoless.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from echoless.broker.services import Services

API = declared(__name__)


async def handle(request: Request, services: Services) -> Answer:
    """One row per name, in the order of the request."""
    body = request.body
    twice = repeated(topic.name for topic in body.topics)
    mutations = Mutations.of(request, services)
    rows = (
        _extended(services, mutations, one, body.validate_only, is_twice=one.name in twice)
        for one in {topic.name: topic for topic in body.topics}.values()
    )
    return await awaited_in_turns(rows, lambda found: {"results": found})


async def _extended(
    services: Services, mutations: Mutations, wanted: Any, validate_only: bool, *, is_twice: bool
) -> dict[str, Any]:
    error: KafkaError | None
    if is_twice:
        error = KafkaError(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
    else:
        error = await _extend(services, mutations, wanted, validate_only)
    return _row(wanted.name, error)


async def _extend(
    services: Services, mutations: Mutations, wanted: Any, validate_only: bool
) -> KafkaError | None:
    """The error, if any."""
    topic = services.registry.topics.get(wanted.name)
    added = 0 if validate_only or topic is None else wanted.count - topic.partition_count
    assignment = _assignment(services, wanted)
    try:
        with mutations.counted(added):
            await services.topics.create_partitions(
                wanted.name, wanted.count, assignment, validate_only=validate_only
            )
    except KafkaError as error:
        return error
    return None


def _assignment(services: Services, wanted: Any) -> dict[int, tuple[int, ...]] | None:
    """The replicas of the new partitions by number; the client lists them in order, unnumbered."""
    topic = services.registry.topics.get(wanted.name)
    if wanted.assignments is None or topic is None:
        return None
    replicas = (tuple(one.broker_ids) for one in wanted.assignments)
    return dict(enumerate(replicas, topic.partition_count))


def _row(name: str, error: KafkaError | None) -> dict[str, Any]:
    if error is None:
        return {"name": name, "error_code": ErrorCode.NONE}
    return {"name": name, "error_code": error.code, "error_message": error.message or None}


def refuse(refusal: Refusal, _services: Services) -> Answer:
    """The error in the row of each refused topic."""
    names = [name for name, _ in refusal.rows if refusal.is_refused(name, -1)]
    return {"results": [_row(name, refusal.error) for name in dict.fromkeys(names)]}


SERVED = Served(
    API, handle, refuse, Names.TOPICS, Rows("results"), permit=permits.topics(AclOperation.ALTER)
)
