"""DescribeClientQuotas (48), versions 0-1 (KIP-546): which users, client ids and addresses have which quotas.

v1 flexible. Read from the tree, so the answer is right on every broker.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from echoless.broker.handlers import permits
from echoless.broker.handlers.apis import declared
from echoless.broker.handlers.quota_entity import FIELDS, invalid, parts_of, rows_of
from echoless.broker.handlers.refusals import Refusal
from echoless.broker.handlers.served import Served
from echoless.broker.metadata.config_nodes import DEFAULT_NAME, sanitized
from echoless.broker.network.request import Answer, Request
from echoless.broker.network.turns import in_turns
from echoless.broker.quotas.quota_nodes import read_quotas
from echoless.broker.tree.node_tree import CoordinationError
from echoless.protocol.acl import AclOperation
from echoless.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from echoless.broker.quotas.quota import Entity, QuotaKey
    from echoless.broker.services import Services

API = declared(__name__)

_EXACT: Final = 0
_DEFAULT: Final = 1
_ANY: Final = 2
_ADDRESS: Final = "ip"


async def handle(request: Request, services: Services) -> Answer:
    """The quotas of each entity that all components match; `strict`: and that has no other parts."""
    body = request.body
    try:
        wanted = _names_wanted(body.components)
        quotas = await read_quotas(services.tree)
    except KafkaError as error:
        return _answer(error.code, error.message, None)
    except CoordinationError as error:
        return _answer(ErrorCode.COORDINATOR_NOT_AVAILABLE, str(error), None)
    rows = _rows(quotas, wanted, is_strict=body.strict)
    answer = in_turns(rows, lambda found: _answer(ErrorCode.NONE, None, found))
    return await answer if isinstance(answer, Awaitable) else answer


def _names_wanted(components: Iterable[Any]) -> dict[str, Callable[[str], bool]]:
    """Whether a name is wanted, by the type of entity. Raises `KafkaError`."""
    wanted: dict[str, Callable[[str], bool]] = {}
    for one in components:
        kind = one.entity_type
        if not kind:
            raise invalid("Unexpected empty filter component entity type")
        if kind not in FIELDS:
            raise KafkaError(
                ErrorCode.UNSUPPORTED_VERSION, f"Custom entity type {kind!r} is not supported"
            )
        if kind in wanted:
            raise invalid(f"Duplicate {kind} filter component entity type")
        wanted[kind] = _matcher(one)
    if _ADDRESS in wanted and len(wanted) > 1:
        raise invalid("An ip component cannot be used with a user or client-id component")
    return wanted


def _matcher(component: Any) -> Callable[[str], bool]:
    if component.match_type == _ANY:
        return lambda _name: True
    if component.match_type == _DEFAULT:
        return lambda name: name == DEFAULT_NAME
    if component.match_type != _EXACT or component.match is None:
        raise invalid(f"Unexpected match type {component.match_type} or no name to match")
    expected = sanitized(component.match)
    return lambda name: name == expected


def _rows(
    quotas: Mapping[Entity, Mapping[QuotaKey, float]],
    wanted: Mapping[str, Callable[[str], bool]],
    *,
    is_strict: bool,
) -> Iterator[dict[str, Any]]:
    for entity, values in quotas.items():
        parts = dict(parts_of(entity))
        has_others = is_strict and len(parts) != len(wanted)
        if not has_others and all(
            kind in parts and is_wanted(parts[kind]) for kind, is_wanted in wanted.items()
        ):
            pairs = [{"key": key.value, "value": value} for key, value in values.items()]
            yield {"entity": rows_of(entity), "values": pairs}


def refuse(refusal: Refusal, _services: Services) -> Answer:
    """The error of the whole request."""
    return _answer(refusal.error.code, refusal.error.message or None, None)


def _answer(
    code: ErrorCode, message: str | None, entries: list[dict[str, Any]] | None
) -> dict[str, Any]:
    return {"error_code": code, "error_message": message, "entries": entries}


SERVED = Served(API, handle, refuse, permit=permits.cluster(AclOperation.DESCRIBE_CONFIGS))
