"""Heartbeat (12), versions 0-4: a member of a consumer group is alive; the answer says if it has to rejoin.

v1-2: as they are. v3 (KIP-345): static members. v4: flexible.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from echoless.broker.handlers import permits
from echoless.broker.handlers.apis import declared
from echoless.broker.handlers.group_answers import translated
from echoless.broker.handlers.refusals import Refusal
from echoless.broker.handlers.served import Served
from echoless.broker.network.request import Answer, Outcome, Request
from echoless.coordinators.groups.answers import HeartbeatAnswer
from echoless.coordinators.groups.requests import Heartbeat
from echoless.protocol.acl import AclOperation
from echoless.protocol.typed_requests import typed

if TYPE_CHECKING:
    from echoless.broker.services import Services

API = declared(__name__)


class HeartbeatRequest(NamedTuple):
    group_id: str
    generation_id: int
    member_id: str
    group_instance_id: str | None = None


def handle(request: Request, services: Services) -> Outcome:
    """Answers at once, unless the group is being loaded."""
    body = typed(HeartbeatRequest, request.body)
    return translated(services.groups.ask(Heartbeat(*body)), _fields)


def _fields(answer: HeartbeatAnswer) -> dict[str, Any]:
    return {"error_code": answer.error_code}


def refuse(refusal: Refusal, _services: Services) -> Answer:
    """The error."""
    return {"error_code": refusal.error.code}


SERVED = Served(API, handle, refuse, permit=permits.group(AclOperation.READ))
