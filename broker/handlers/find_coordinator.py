"""FindCoordinator (10), versions 0-6: the broker that coordinates a group, or a transactional id.

It leads the partition of `__consumer_offsets`, or of `__transaction_state`, that the name chooses; the topic is created here if
it is missing. Where transactions are not served, a transactional producer gets TRANSACTIONAL_ID_AUTHORIZATION_FAILED, the one
error of this API that every client treats as fatal. v1: kinds of keys. v3: flexible. v4 (KIP-699) asks for several keys at once.
v5: no change. v6 (KIP-932): keys of share groups, which are refused.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import echoless.broker.groups.shard  # begins on the loop when the topic is created; this file is imported in a thread
import echoless.broker.transactions.marker_sender
import echoless.broker.transactions.shard  # noqa: F401 - the same
from echoless.broker.cluster.addresses import client_addresses
from echoless.broker.handlers import permits
from echoless.broker.handlers.apis import declared
from echoless.broker.handlers.permits import check, may, rights_of
from echoless.broker.handlers.refusals import Refusal
from echoless.broker.handlers.served import Served
from echoless.broker.network.request import Answer, Outcome, Request
from echoless.broker.network.turns import Described, in_turns
from echoless.protocol.acl import AclOperation, ResourceType
from echoless.protocol.errors import ErrorCode, KafkaError
from echoless.protocol.typed_requests import typed

if TYPE_CHECKING:
    from echoless.broker.authorization.access import Rights
    from echoless.broker.services import Services
    from echoless.broker.state_topics.topic import StateTopic

API = declared(__name__)

_GROUP, _TRANSACTION = 0, 1
_RESOURCE_TYPES = {_GROUP: ResourceType.GROUP, _TRANSACTION: ResourceType.TRANSACTIONAL_ID}
_KEYS_FROM: Final = 4
"""The first version with several keys."""


_JUDGED_AT_ONCE: Final = 100


class FindCoordinatorRequest(NamedTuple):
    key: str = ""
    """The only key before v4; it does not appear in the answer."""
    key_type: int = _GROUP
    coordinator_keys: tuple[str, ...] = ()
    """The keys from v4 on."""


def handle(request: Request, services: Services) -> Outcome:
    """The coordinator of each key, or the reason why there is none."""
    body = typed(FindCoordinatorRequest, request.body)
    topic = _topic_of(body.key_type, services)
    if topic is not None and topic.partition_count is None:
        return _create_and_answer(request, body, topic, services)
    return _answer(request, body, services)


def _topic_of(key_type: int, services: Services) -> StateTopic | None:
    """The internal topic that decides about this kind of keys; None if there is none."""
    if key_type == _TRANSACTION and services.features.transaction_version:
        return services.transactions.topic
    return services.groups.topic if key_type == _GROUP else None


async def _create_and_answer(
    request: Request, body: FindCoordinatorRequest, topic: StateTopic, services: Services
) -> Answer:
    try:
        if await _is_any_allowed(request, body, services):
            await topic.until_created()
    except KafkaError:
        pass  # each key is answered that there is no coordinator
    answer = _answer(request, body, services)
    return await answer if isinstance(answer, Awaitable) else answer


async def _is_any_allowed(
    request: Request, body: FindCoordinatorRequest, services: Services
) -> bool:
    rights = rights_of(request, services)
    keys = body.coordinator_keys if request.version >= _KEYS_FROM else (body.key,)
    for count, key in enumerate(keys):
        if may(rights, AclOperation.DESCRIBE, _RESOURCE_TYPES[body.key_type], key):
            return True
        if count % _JUDGED_AT_ONCE == 0:
            await asyncio.sleep(0)
    return False


def _answer(request: Request, body: FindCoordinatorRequest, services: Services) -> Described:
    rights = rights_of(request, services)
    addresses = client_addresses(services.cluster, request.peer)

    def row(key: str) -> dict[str, Any]:
        try:
            _check(rights, body.key_type, key)
            broker_id = coordinator(body.key_type, key, services)
            address = addresses.get(broker_id)
            if address is None:
                raise _away(broker_id)
        except KafkaError as error:
            return _refused(error)
        found = {"node_id": broker_id, "host": address.host, "port": address.port}
        return {"error_code": ErrorCode.NONE, "error_message": None, **found}

    if request.version < _KEYS_FROM:
        return row(body.key)
    each = ({"key": key, **row(key)} for key in body.coordinator_keys)
    return in_turns(each, lambda rows: {"coordinators": rows})


def _check(rights: Rights | None, key_type: int, key: str) -> None:
    resource_type = _RESOURCE_TYPES.get(key_type)
    if resource_type is not None:
        check(rights, AclOperation.DESCRIBE, resource_type, key)


def coordinator(key_type: int, key: str, services: Services) -> int:
    """The broker that coordinates the key. Raises `KafkaError`."""
    if key_type == _TRANSACTION:
        if services.features.transaction_version:
            return services.transactions.coordinator_of(key)
        raise KafkaError(
            ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
            "transactions are not served; use an idempotent producer without a transactional id",
        )
    if key_type != _GROUP:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "this kind of coordinator is not known")
    return services.groups.coordinator_of(key)


def _away(broker_id: int) -> KafkaError:
    """The error while a member that has lost its session is rejoining: the client will ask again."""
    return KafkaError(
        ErrorCode.COORDINATOR_NOT_AVAILABLE, f"broker {broker_id} is not registered now"
    )


def _refused(error: KafkaError) -> dict[str, Any]:
    return {
        "error_code": error.code,
        "error_message": error.message or None,
        "node_id": -1,
        "host": "",
        "port": -1,
    }


def refuse(refusal: Refusal, _services: Services) -> Answer:
    """The error for each key."""
    no_node = _refused(refusal.error)
    keys = typed(FindCoordinatorRequest, refusal.request.body).coordinator_keys
    return {"coordinators": [{"key": key, **no_node} for key in keys], **no_node}


SERVED = Served(API, handle, refuse, permit=permits.asked_by_handler)
