"""DescribeTransactions (65), version 0: the state of transactional ids that this broker coordinates (KIP-664)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from echoless.broker.handlers import permits
from echoless.broker.handlers.apis import declared
from echoless.broker.handlers.permits import may, rights_of
from echoless.broker.handlers.refusals import Refusal
from echoless.broker.handlers.served import Served
from echoless.broker.handlers.transaction_rows import STATE_NAMES, by_topic
from echoless.broker.network.request import Answer, Outcome, Request
from echoless.broker.network.turns import in_turns
from echoless.protocol.acl import AclOperation, ResourceType
from echoless.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from echoless.broker.authorization.access import Rights
    from echoless.broker.services import Services

API = declared(__name__)

_NONE: Final[dict[str, Any]] = {
    "transaction_state": "",
    "transaction_timeout": 0,
    "transaction_start_time": 0,
    "producer_id": 0,
    "producer_epoch": 0,
    "topics": (),
}
"""The fields of a row with an error, as Kafka leaves them."""


def handle(request: Request, services: Services) -> Outcome:
    """A row for each id."""
    rights = rights_of(request, services)
    names = dict.fromkeys(request.body.transactional_ids)
    rows = (_row(name, rights, services) for name in names)
    return in_turns(rows, lambda found: {"transaction_states": found})


def _row(name: str, rights: Rights | None, services: Services) -> dict[str, Any]:
    if not may(rights, AclOperation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, name):
        return _error(name, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    state = services.transactions.look_at(name)
    if isinstance(state, ErrorCode):
        return _error(name, state)
    value = state.value
    assert value is not None, "only known ids have a state"
    partitions = state.unmarked if value.status.is_prepared else value.partitions
    topics = [
        {"topic": topic, "partitions": indexes}
        for topic, indexes in by_topic(partitions).items()
        if may(rights, AclOperation.DESCRIBE, ResourceType.TOPIC, topic)
    ]
    return {
        "error_code": ErrorCode.NONE,
        "transactional_id": name,
        "transaction_state": STATE_NAMES[value.status],
        "transaction_timeout": value.timeout_ms,
        "transaction_start_time": value.start_ms,
        "producer_id": value.producer_id,
        "producer_epoch": value.producer_epoch,
        "topics": topics,
    }


def _error(name: str, code: ErrorCode) -> dict[str, Any]:
    return {"error_code": code, "transactional_id": name, **_NONE}


def refuse(refusal: Refusal, _services: Services) -> Answer:
    """The error for each id."""
    names = dict.fromkeys(refusal.request.body.transactional_ids)
    return {"transaction_states": [_error(name, refusal.error.code) for name in names]}


SERVED = Served(API, handle, refuse, permit=permits.asked_by_handler)
