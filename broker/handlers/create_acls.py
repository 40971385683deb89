"""CreateAcls (30), versions 1-3: adds ACLs, each on its own; one that exists already is a success (KIP-140).

An ACL is answered once it is stored, and in force on this broker; others follow within a moment. v1
(KIP-290): pattern types. v2: flexible. v3 (KIP-373): users as resources. Not served: v0.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Awaitable
from typing import TYPE_CHECKING, Any

from echoless.broker.authorization.acl_nodes import AclChangeError
from echoless.broker.handlers import permits
from echoless.broker.handlers.acl_binding import find_access, read_binding
from echoless.broker.handlers.apis import declared
from echoless.broker.handlers.refusals import Refusal
from echoless.broker.handlers.served import Served
from echoless.broker.network.request import Answer, Request
from echoless.broker.network.turns import in_turns, work_in_turns
from echoless.protocol.acl import AclOperation, Binding, Entry, Pattern
from echoless.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from echoless.broker.authorization.access import Access
    from echoless.broker.services import Services

API = declared(__name__)


async def handle(request: Request, services: Services) -> Answer:
    """One row per ACL, in the order of the request."""
    read: list[Binding | KafkaError] = []
    await work_in_turns(
        map(read.append, (_read(creation, services) for creation in request.body.creations))
    )
    failures: dict[Pattern, KafkaError] = {}
    if services.access is not None:
        bindings = [one for one in read if isinstance(one, Binding)]
        failures = await _create(services.access, bindings)
    outcomes = (failures.get(one.pattern) if isinstance(one, Binding) else one for one in read)
    answer = in_turns(map(_row, outcomes), lambda rows: {"results": rows})
    return await answer if isinstance(answer, Awaitable) else answer


def _read(creation: Any, services: Services) -> Binding | KafkaError:
    try:
        find_access(services)
        return _checked(read_binding(creation), services)
    except KafkaError as error:
        return error


def _checked(binding: Binding, services: Services) -> Binding:
    """Raises `KafkaError` for an operation that older brokers of the cluster cannot read."""
    is_new = binding.entry.operation is AclOperation.TWO_PHASE_COMMIT
    if is_new and not services.features.transaction_version:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            "TwoPhaseCommit cannot be stored yet: not all brokers of the cluster know it (echoless features describe)",
        )
    return binding


async def _create(access: Access, bindings: list[Binding]) -> dict[Pattern, KafkaError]:
    """Adds the ACLs of each pattern in one go; returns the errors by pattern."""
    failures: dict[Pattern, KafkaError] = {}
    by_pattern: defaultdict[Pattern, set[Entry]] = defaultdict(set)
    for pattern, entry in bindings:
        by_pattern[pattern].add(entry)
    for pattern, entries in by_pattern.items():
        try:
            await access.add(pattern, frozenset(entries))
        except AclChangeError as error:
            failures[pattern] = KafkaError(ErrorCode.REQUEST_TIMED_OUT, str(error))
    return failures


def _row(error: KafkaError | None) -> dict[str, Any]:
    if error is None:
        return {"error_code": ErrorCode.NONE, "error_message": None}
    return {"error_code": error.code, "error_message": error.message or None}


def refuse(refusal: Refusal, _services: Services) -> Answer:
    """The error in the row of each ACL."""
    return {"results": [_row(refusal.error) for _ in refusal.request.body.creations]}


SERVED = Served(API, handle, refuse, permit=permits.cluster(AclOperation.ALTER))
