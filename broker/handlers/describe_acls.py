"""DescribeAcls (29), versions 1-3: the ACLs that a filter matches, by resource (KIP-140).

v1 (KIP-290): pattern types. v2: flexible. v3 (KIP-373): users as resources. Not served: v0, which
knows literal names only, and which no client has sent since 2018.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from echoless.broker.handlers import permits
from echoless.broker.handlers.acl_binding import (
    entry_fields,
    find_access,
    pattern_fields,
    read_filter,
)
from echoless.broker.handlers.apis import declared
from echoless.broker.handlers.refusals import Refusal
from echoless.broker.handlers.served import Served
from echoless.broker.network.request import Answer, Outcome, Request
from echoless.broker.network.turns import in_turns
from echoless.protocol.acl import AclOperation, BindingFilter
from echoless.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from echoless.broker.authorization.access import Access
    from echoless.broker.services import Services

API = declared(__name__)


def handle(request: Request, services: Services) -> Outcome:
    """One row per pattern that has a matching ACL."""
    try:
        access, wanted = find_access(services), read_filter(request.body)
    except KafkaError as error:
        return _failure(error)
    return in_turns(
        _resources(access, wanted),
        lambda rows: {
            "error_code": ErrorCode.NONE,
            "error_message": None,
            "resources": [row for row in rows if row["acls"]],
        },
    )


def _resources(access: Access, wanted: BindingFilter) -> Iterator[dict[str, Any]]:
    """A row for each pattern, also for those of which no entry matches: it may take many to find one."""
    for pattern in access.acls.patterns():
        entries = access.acls.get(pattern) if wanted.matches_pattern(pattern) else ()
        acls = [entry_fields(entry) for entry in sorted(entries) if wanted.matches_entry(entry)]
        yield {**pattern_fields(pattern), "acls": acls}


def _failure(error: KafkaError) -> dict[str, Any]:
    return {"error_code": error.code, "error_message": error.message or None, "resources": ()}


def refuse(refusal: Refusal, _services: Services) -> Answer:
    """The error, and no ACLs."""
    return _failure(refusal.error)


SERVED = Served(API, handle, refuse, permit=permits.cluster(AclOperation.DESCRIBE))
