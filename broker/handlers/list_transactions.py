"""ListTransactions (66), versions 0-2: the transactional ids that this broker coordinates (KIP-664).

A client asks every broker. Ids that it may not describe are left out. v1 (KIP-994): a filter for the time that a transaction
has been open. v2 (KIP-1152): a regular expression for the id, of RE2, which matches it as a whole.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from echoless.broker.groups.topic_patterns import check_pattern, matching_names
from echoless.broker.handlers import permits
from echoless.broker.handlers.apis import declared
from echoless.broker.handlers.group_answers import with_rows
from echoless.broker.handlers.permits import rights_of
from echoless.broker.handlers.refusals import Refusal
from echoless.broker.handlers.served import Served
from echoless.broker.handlers.transaction_rows import STATE_NAMES
from echoless.broker.network.request import Answer, Request
from echoless.broker.network.turns import work_in_turns
from echoless.protocol.acl import AclOperation, ResourceType
from echoless.protocol.errors import ErrorCode, KafkaError
from echoless.protocol.typed_requests import typed

if TYPE_CHECKING:
    from echoless.broker.authorization.access import Rights
    from echoless.broker.services import Services
    from echoless.protocol.state_records.transaction_records import TransactionValue

API = declared(__name__)

FILTERS_MAX: Final = 1000
"""States and producer ids in one request."""
_NO_DURATION: Final = -1
_NEVER_LISTED: Final = frozenset({"Dead", "PrepareEpochFence"})
"""States of Kafka's that no id is stored in."""


class ListTransactionsRequest(NamedTuple):
    state_filters: tuple[str, ...] = ()
    producer_id_filters: tuple[int, ...] = ()
    duration_filter: int = _NO_DURATION
    """Milliseconds; only transactions that began longer ago are wanted."""
    transactional_id_pattern: str | None = None


async def handle(request: Request, services: Services) -> Answer:
    """The ids of all partitions that this broker leads; an error, and none, while it loads one."""
    body = typed(ListTransactionsRequest, request.body)
    if len(body.state_filters) + len(body.producer_id_filters) > FILTERS_MAX:
        return _error(ErrorCode.INVALID_REQUEST)
    code = services.transactions.readiness()
    if code is not ErrorCode.NONE:
        return _error(code)
    pattern, address = body.transactional_id_pattern, request.peer.host
    try:
        if pattern:
            await check_pattern(pattern, address)
    except KafkaError as error:
        return _error(error.code)
    found: dict[str, dict[str, Any]] = {}
    await work_in_turns(_listed(body, rights_of(request, services), services, found))
    if pattern:
        names = await matching_names(pattern, list(found), address)
        found = {name: found[name] for name in names}
    known = _NEVER_LISTED.union(STATE_NAMES.values())
    unknown = [name for name in dict.fromkeys(body.state_filters) if name not in known]
    rows = list(found.values())
    fields = {
        "error_code": ErrorCode.NONE,
        "unknown_state_filters": unknown,
        "transaction_states": rows,
    }
    return with_rows(fields, rows)


def _listed(
    wanted: ListTransactionsRequest,
    rights: Rights | None,
    services: Services,
    found: dict[str, dict[str, Any]],
) -> Iterator[None]:
    """Adds the rows to `found`, looking at one id at a time."""
    states, producer_ids = frozenset(wanted.state_filters), frozenset(wanted.producer_id_filters)
    latest_start_ms = None
    if wanted.duration_filter >= 0:
        latest_start_ms = services.clock.wall_ms() - wanted.duration_filter

    def is_wanted(value: TransactionValue) -> bool:
        if states and STATE_NAMES[value.status] not in states:
            return False
        if producer_ids and value.producer_id not in producer_ids:
            return False
        return latest_start_ms is None or value.start_ms < latest_start_ms

    for name, value in services.transactions.all():
        if is_wanted(value) and (
            rights is None or rights.may(AclOperation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, name)
        ):
            found[name] = {
                "transactional_id": name,
                "producer_id": value.producer_id,
                "transaction_state": STATE_NAMES[value.status],
            }
        yield


def _error(code: ErrorCode) -> dict[str, Any]:
    return {"error_code": code, "unknown_state_filters": (), "transaction_states": ()}


def refuse(refusal: Refusal, _services: Services) -> Answer:
    """The error, and no ids."""
    return _error(refusal.error.code)


SERVED = Served(API, handle, refuse, permit=permits.asked_by_handler)
