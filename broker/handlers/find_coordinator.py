"""FindCoordinator (10), versions 0-4: this broker for consumer groups, an error for transactions.

Neither is served. A consumer that only assigns partitions may still ask, if it has a group id, and
commit when it closes: librdkafka always does; it would report an error here to its user and then take
45 s to close. So it is given this broker, whose ApiVersions lists no JoinGroup and no OffsetCommit: a
consumer that subscribes learns from that, by name, what is missing. A transactional producer gets
TRANSACTIONAL_ID_AUTHORIZATION_FAILED, the one error of this API that every client treats as fatal.
v4 (KIP-699) asks for several keys at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from broker.cluster.addresses import client_addresses
from broker.handlers import permits
from broker.handlers.permits import denied, rights_of
from broker.handlers.refusals import Refusal
from broker.handlers.served import Served
from broker.network.request import Answer, Outcome, Request
from broker.network.turns import in_turns
from protocol.acl import AclOperation, ResourceType
from protocol.errors import ErrorCode, KafkaError
from protocol.lean_named_tuple import NamedTuple
from protocol.registry import Api
from protocol.typed_requests import typed

if TYPE_CHECKING:
    from broker.services import Services

API = Api(key=10, name="find_coordinator", version_min=0, version_max=4, flexible_from=3)

_GROUP, _TRANSACTION = 0, 1
_REFUSED = {
    _TRANSACTION: (
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        "transactions are not served; use an idempotent producer without a transactional id",
    ),
}
_RESOURCE_TYPES = {_GROUP: ResourceType.GROUP, _TRANSACTION: ResourceType.TRANSACTIONAL_ID}
_UNKNOWN = ErrorCode.INVALID_REQUEST, "this kind of coordinator is not known"


class FindCoordinatorRequest(NamedTuple):
    key: str = ""
    """The only key before v4; it does not appear in the answer."""
    key_type: int = _GROUP
    coordinator_keys: tuple[str, ...] = ()
    """The keys from v4 on."""


def handle(request: Request, services: Services) -> Outcome:
    """The same answer for every key: this broker, or the reason why not."""
    body = typed(FindCoordinatorRequest, request.body)
    found = coordinator(body.key_type, services, request.peer.listener)
    rights, resource_type = rights_of(request, services), _RESOURCE_TYPES.get(body.key_type)
    if rights is None or resource_type is None:
        every = ({"key": key, **found} for key in body.coordinator_keys)
        return in_turns(every, lambda rows: {"coordinators": rows, **found})
    allowed = rights.allowed(AclOperation.DESCRIBE, resource_type)
    refused = _refused(denied(AclOperation.DESCRIBE, resource_type))
    each = ({"key": key, **(found if allowed[key] else refused)} for key in body.coordinator_keys)
    return in_turns(
        each,
        lambda rows: {"coordinators": rows, **(found if rows or allowed[body.key] else refused)},
    )


def _refused(error: KafkaError) -> dict[str, Any]:
    return {
        "error_code": error.code,
        "error_message": error.message or None,
        "node_id": -1,
        "host": "",
        "port": -1,
    }


def coordinator(key_type: int, services: Services, listener: str) -> dict[str, Any]:
    """The coordinator of keys of this type, for a client of this listener."""
    broker_id = services.config.broker_id
    is_there = broker_id in services.cluster.brokers
    address = client_addresses(services.cluster, listener).get(broker_id) if is_there else None
    if key_type == _GROUP and address is not None:
        found = {"node_id": broker_id, "host": address.host, "port": address.port}
        return {"error_code": ErrorCode.NONE, "error_message": None, **found}
    no_node = {"node_id": -1, "host": "", "port": -1}
    if key_type == _GROUP:
        # A cluster member that has lost its session and is rejoining: the client will ask again.
        code, reason = ErrorCode.COORDINATOR_NOT_AVAILABLE, "this broker is not registered now"
    else:
        code, reason = _REFUSED.get(key_type, _UNKNOWN)
    return {"error_code": code, "error_message": reason, **no_node}


def refuse(refusal: Refusal, _services: Services) -> Answer:
    """The error for each key."""
    no_node = _refused(refusal.error)
    keys = typed(FindCoordinatorRequest, refusal.request.body).coordinator_keys
    return {"coordinators": [{"key": key, **no_node} for key in keys], **no_node}


SERVED = Served(API, handle, refuse, permit=permits.asked_by_handler)
