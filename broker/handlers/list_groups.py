"""ListGroups (16), versions 0-5: the consumer groups that this broker coordinates.

A client asks every broker. Groups that it may not describe are left out. v1-2: as they are. v3: flexible. v4
(KIP-518): states, and a filter for them. v5 (KIP-848): the same for types.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from echoless.broker.handlers import permits
from echoless.broker.handlers.apis import declared
from echoless.broker.handlers.permits import rights_of
from echoless.broker.handlers.refusals import Refusal
from echoless.broker.handlers.served import Served
from echoless.broker.network.request import Answer, Outcome, Request
from echoless.broker.network.turns import in_turns
from echoless.protocol.acl import AclOperation, ResourceType
from echoless.protocol.errors import ErrorCode
from echoless.protocol.typed_requests import typed

if TYPE_CHECKING:
    from echoless.broker.authorization.access import Rights
    from echoless.broker.services import Services

API = declared(__name__)


FILTERS_MAX: Final = 100
"""States and types in one request: there are not ten of them."""
_LONGEST: Final = 32
"""Characters of a state or type that are looked at, more than any has: each coordinator folds the case of all filters."""


class ListGroupsRequest(NamedTuple):
    states_filter: tuple[str, ...] = ()
    types_filter: tuple[str, ...] = ()


def handle(request: Request, services: Services) -> Outcome:
    """The groups of the partitions that are loaded; with an error if some are not."""
    body, rights = typed(ListGroupsRequest, request.body), rights_of(request, services)
    if len(body.states_filter) + len(body.types_filter) > FILTERS_MAX:
        return {"error_code": ErrorCode.INVALID_REQUEST, "groups": ()}
    groups: list[dict[str, Any]] = []
    steps = _listed(body, rights, services, groups)
    code = services.groups.readiness()
    return in_turns(steps, lambda _: {"error_code": code, "groups": groups})


def _listed(
    wanted: ListGroupsRequest,
    rights: Rights | None,
    services: Services,
    groups: list[dict[str, Any]],
) -> Iterator[object]:
    """Adds the groups to the answer, one at a time."""
    if rights is not None and rights.may_with_cluster(AclOperation.DESCRIBE):
        rights = None
    filters = ([one[:_LONGEST] for one in names] for names in wanted)
    for one in services.groups.listed(*filters):
        yield None
        if one is None:
            continue
        if rights is None or rights.may(AclOperation.DESCRIBE, ResourceType.GROUP, one.group_id):
            groups.append(
                {
                    "group_id": one.group_id,
                    "protocol_type": one.protocol_type,
                    "group_state": one.state,
                    "group_type": one.group_type,
                }
            )


def refuse(refusal: Refusal, _services: Services) -> Answer:
    """The error, and no groups."""
    code: ErrorCode = refusal.error.code
    return {"error_code": code, "groups": ()}


SERVED = Served(API, handle, refuse, permit=permits.asked_by_handler)
