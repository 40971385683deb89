"""LeaveGroup (13), versions 0-5: members leave a consumer group at once, instead of when their session ends.

v0-2: one member, whose error is that of the answer. v3 (KIP-345): several, as an administrator removes static
members by their instance ids. v4: flexible. v5: a reason, which is logged.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from echoless.broker.handlers import permits
from echoless.broker.handlers.apis import declared
from echoless.broker.handlers.commit_turn import after_commits
from echoless.broker.handlers.group_answers import translated, with_rows
from echoless.broker.handlers.refusals import Refusal
from echoless.broker.handlers.served import Served
from echoless.broker.network.request import Answer, Outcome, Request
from echoless.coordinators.groups.answers import LeaveAnswer
from echoless.coordinators.groups.requests import LeaveGroup, LeavingMember
from echoless.protocol.acl import AclOperation
from echoless.protocol.errors import ErrorCode
from echoless.protocol.typed_requests import typed

if TYPE_CHECKING:
    from echoless.broker.services import Services

API = declared(__name__)

_MEMBERS_FROM: Final = 3
LEAVING_MAX: Final = 2_000
"""Members that may leave with one request, in one step: as many as a group has."""


class LeaveGroupRequest(NamedTuple):
    group_id: str
    member_id: str = ""
    """The only member before v3."""
    members: tuple[Any, ...] = ()


class MemberIdentity(NamedTuple):
    member_id: str
    group_instance_id: str | None
    reason: str | None = None


def handle(request: Request, services: Services) -> Outcome:
    """One row per member, in the order of the request."""
    body, version = typed(LeaveGroupRequest, request.body), request.version
    members: tuple[LeavingMember, ...] = (LeavingMember(body.member_id),)
    if len(body.members) > LEAVING_MAX:
        return _fields(version, LeaveAnswer(ErrorCode.INVALID_REQUEST))
    if version >= _MEMBERS_FROM:
        identities = (typed(MemberIdentity, one) for one in body.members)
        members = tuple(
            LeavingMember(one.member_id, one.group_instance_id, one.reason or "")
            for one in identities
        )
    wanted = LeaveGroup(body.group_id, members)
    return translated(services.groups.ask(wanted), lambda answer: _fields(version, answer))


def _fields(version: int, answer: LeaveAnswer) -> dict[str, Any]:
    code = answer.error_code
    if version < _MEMBERS_FROM and code is ErrorCode.NONE and answer.members:
        code = answer.members[0].error_code
    rows = [one._asdict() for one in answer.members]
    return with_rows({"error_code": code, "members": rows}, rows)


def refuse(refusal: Refusal, _services: Services) -> Answer:
    """The error, and no members."""
    return {"error_code": refusal.error.code, "members": ()}


SERVED = Served(API, after_commits(handle), refuse, permit=permits.group(AclOperation.READ))
