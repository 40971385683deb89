"""AlterClientQuotas (49), versions 0-1 (KIP-546): sets and removes the quotas of users, client ids and addresses.

v1 flexible. Every broker serves it: the tree orders changes.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from echoless.broker.handlers import permits
from echoless.broker.handlers.apis import declared
from echoless.broker.handlers.quota_entity import entity_of, invalid
from echoless.broker.handlers.refusals import Refusal
from echoless.broker.handlers.served import Served
from echoless.broker.metadata.node_data import NodeDataError
from echoless.broker.network.request import Answer, Request
from echoless.broker.network.turns import awaited_in_turns
from echoless.broker.quotas.quota import WHOLE_NUMBERS
from echoless.broker.quotas.quota_nodes import alter_quotas, keys_of
from echoless.broker.tree.node_tree import CoordinationError
from echoless.protocol.acl import AclOperation
from echoless.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from echoless.broker.quotas.quota import Entity
    from echoless.broker.services import Services

API = declared(__name__)

ENTITIES_MAX: Final = 1000
"""Entities that one request may change: each is written by itself."""
_WHOLE_WITHIN: Final = 1e-6
"""The distance from a whole number that a value may have, as in Kafka."""


async def handle(request: Request, services: Services) -> Answer:
    """A row for each entity: all of its changes are made, or none."""
    body = request.body
    rows = (
        _row(services, entry, is_beyond=number >= ENTITIES_MAX, is_made=not body.validate_only)
        for number, entry in enumerate(body.entries)
    )
    answer = await awaited_in_turns(rows, lambda found: {"entries": found})
    if not body.validate_only:
        await _apply(services)
    return answer


async def _row(services: Services, entry: Any, *, is_beyond: bool, is_made: bool) -> dict[str, Any]:
    code, message = ErrorCode.NONE, None
    try:
        if is_beyond:
            raise invalid(f"at most {ENTITIES_MAX} entities are changed by one request")
        entity = entity_of(entry.entity)
        values = _values(entity, entry.ops)
        if is_made:
            await alter_quotas(services.tree, entity, values)
    except KafkaError as error:
        code, message = error.code, error.message
    except NodeDataError as error:
        code, message = ErrorCode.UNKNOWN_SERVER_ERROR, str(error)
    except CoordinationError as error:
        code, message = ErrorCode.COORDINATOR_NOT_AVAILABLE, str(error)
    return {"error_code": code, "error_message": message, "entity": _named(entry)}


async def _apply(services: Services) -> None:
    """Has the change in force before the answer; without a coordinator it is read later."""
    try:
        await services.quotas.refresh()
    except CoordinationError:
        return


def _values(entity: Entity, ops: Iterable[Any]) -> Mapping[str, str | None]:
    """The text to store for each quota, None to remove it. Raises `KafkaError` INVALID_REQUEST."""
    known = keys_of(entity)
    values: dict[str, str | None] = {}
    for op in ops:
        if op.key in values:
            raise invalid(f"{op.key} is there twice")
        if op.key not in known:
            raise invalid(f"Invalid configuration key {op.key}")
        values[op.key] = None if op.remove else _text(op.key, op.value)
    return values


def _text(key: str, value: float) -> str:
    if not (math.isfinite(value) and value > 0):
        raise invalid(f"Quota {key} must be greater than 0")
    if key not in WHOLE_NUMBERS:
        return str(value)
    whole = math.floor(value + _WHOLE_WITHIN)
    if abs(whole - value) > _WHOLE_WITHIN:
        raise invalid(f"Configuration {key} must be a whole number")
    return str(whole)


def refuse(refusal: Refusal, _services: Services) -> Answer:
    """The error in the row of each entity."""
    entries = refusal.request.body.entries
    return {"entries": [{"entity": _named(entry), **refusal.row} for entry in entries]}


def _named(entry: Any) -> list[dict[str, Any]]:
    return [
        {"entity_type": one.entity_type, "entity_name": one.entity_name} for one in entry.entity
    ]


SERVED = Served(API, handle, refuse, permit=permits.cluster(AclOperation.ALTER_CONFIGS))
