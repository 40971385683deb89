"""JoinGroup (11), versions 0-9: becomes a member of a consumer group, and waits for the others.

v0 has no rebalance timeout. v1-3: as they are. v4 (KIP-394): a new member is given its id first. v5
(KIP-345): static members. v6: flexible. v7: the protocol type in the answer. v8: a reason, which is logged. v9
(KIP-814): the leader may be instructed to keep the assignment.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

from echoless.broker.handlers import permits
from echoless.broker.handlers.apis import declared
from echoless.broker.handlers.commit_turn import after_commits
from echoless.broker.handlers.group_answers import packed
from echoless.broker.handlers.refusals import Refusal
from echoless.broker.handlers.served import Served
from echoless.broker.network.request import Outcome, Request
from echoless.broker.network.sharer import sharer_of
from echoless.coordinators.groups.answers import JoinAnswer, refusal
from echoless.coordinators.groups.requests import JoinGroup
from echoless.protocol.acl import AclOperation
from echoless.protocol.group_responses import encode_join_group_response
from echoless.protocol.typed_requests import typed

if TYPE_CHECKING:
    from echoless.broker.services import Services

API = declared(__name__)

_KNOWN_IDS_FROM = 4
_SKIP_FROM = 9
_PROTOCOLS_READ = 100
"""Protocols that are looked at: the coordinator refuses a member with fewer than these."""


class JoinGroupRequest(NamedTuple):
    group_id: str
    session_timeout: timedelta
    member_id: str
    protocol_type: str
    protocols: tuple[Any, ...]
    rebalance_timeout: timedelta | None = None
    group_instance_id: str | None = None
    reason: str | None = None


def handle(request: Request, services: Services) -> Outcome:
    """Answers once the group has a new generation."""
    wanted = _wanted(request, services.groups.new_member_uuid())
    version = request.version
    return packed(services.groups.ask(wanted), lambda answer: _packed(version, answer))


def _wanted(request: Request, uuid: str) -> JoinGroup:
    body, version = typed(JoinGroupRequest, request.body), request.version
    rebalance_timeout = body.rebalance_timeout or body.session_timeout
    if body.rebalance_timeout is not None:
        rebalance_timeout = body.rebalance_timeout
    return JoinGroup(
        group_id=body.group_id,
        member_id=body.member_id,
        group_instance_id=body.group_instance_id,
        client_id=request.client_id or "",
        client_host=f"/{request.peer.host}",
        session_timeout_ms=body.session_timeout // timedelta(milliseconds=1),
        rebalance_timeout_ms=rebalance_timeout // timedelta(milliseconds=1),
        protocol_type=body.protocol_type,
        protocols=tuple(
            (one.name, bytes(one.metadata)) for one in body.protocols[:_PROTOCOLS_READ]
        ),
        uuid=uuid,
        requires_known_member_id=version >= _KNOWN_IDS_FROM,
        can_skip_assignment=version >= _SKIP_FROM,
        reason=body.reason or "",
        sharer=sharer_of(request.peer),
    )


def _packed(version: int, answer: JoinAnswer) -> bytes:
    return encode_join_group_response(
        version,
        error_code=answer.error_code,
        generation_id=answer.generation_id,
        protocol_type=answer.protocol_type,
        protocol_name=answer.protocol_name,
        leader=answer.leader,
        skip_assignment=answer.skip_assignment,
        member_id=answer.member_id,
        members=answer.members,
    )


def refuse(refusal_: Refusal, _services: Services) -> bytes:
    """The error, and no generation."""
    answer = refusal(_wanted(refusal_.request, ""), refusal_.error.code)
    assert isinstance(answer, JoinAnswer)
    return _packed(refusal_.request.version, answer)


SERVED = Served(API, after_commits(handle), refuse, permit=permits.group(AclOperation.READ))
