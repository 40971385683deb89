"""SyncGroup (14), versions 0-5: the leader gives the assignment of a generation, every member gets its part.

v1-2: as they are. v3 (KIP-345): static members. v4: flexible. v5: type and name of the protocol.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from echoless.broker.handlers import permits
from echoless.broker.handlers.apis import declared
from echoless.broker.handlers.group_answers import packed
from echoless.broker.handlers.refusals import Refusal
from echoless.broker.handlers.served import Served
from echoless.broker.network.request import Outcome, Request
from echoless.coordinators.groups.answers import SyncAnswer
from echoless.coordinators.groups.requests import SyncGroup
from echoless.protocol.acl import AclOperation
from echoless.protocol.errors import ErrorCode
from echoless.protocol.group_responses import encode_sync_group_response
from echoless.protocol.typed_requests import typed

if TYPE_CHECKING:
    from echoless.broker.services import Services

API = declared(__name__)

_NAMES_FROM: Final = 5
ASSIGNMENTS_MAX: Final = 4_000
"""Assignments in one request, which are looked at in one step: twice as many as a group has members."""


class SyncGroupRequest(NamedTuple):
    group_id: str
    generation_id: int
    member_id: str
    assignments: tuple[Any, ...]
    group_instance_id: str | None = None
    protocol_type: str | None = None
    protocol_name: str | None = None


def handle(request: Request, services: Services) -> Outcome:
    """Answers once the assignment is stored."""
    body = typed(SyncGroupRequest, request.body)
    if len(body.assignments) > ASSIGNMENTS_MAX:
        return _packed(request.version, SyncAnswer(ErrorCode.INVALID_REQUEST))
    wanted = SyncGroup(
        group_id=body.group_id,
        generation_id=body.generation_id,
        member_id=body.member_id,
        group_instance_id=body.group_instance_id,
        assignments=tuple((one.member_id, bytes(one.assignment)) for one in body.assignments),
        protocol_type=body.protocol_type,
        protocol_name=body.protocol_name,
        names_protocol=request.version >= _NAMES_FROM,
    )
    version = request.version
    return packed(services.groups.ask(wanted), lambda answer: _packed(version, answer))


def _packed(version: int, answer: SyncAnswer) -> bytes:
    return encode_sync_group_response(version, **answer._asdict())


def refuse(refusal: Refusal, _services: Services) -> bytes:
    """The error, and no assignment."""
    return _packed(refusal.request.version, SyncAnswer(refusal.error.code))


SERVED = Served(API, handle, refuse, permit=permits.group(AclOperation.READ))
