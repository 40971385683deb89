"""Heartbeat (12), versions 0-4: a member of a consumer group is alive; the answer says if it has to rejoin.

v1-2: as they are. v3 (KIP-345): static members. v4: flexible.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from broker.handlers import permits
from broker.handlers.apis import declared
from broker.handlers.group_answers import translated
from broker.handlers.refusals import Refusal
from broker.handlers.served import Served
from broker.network.request import Answer, Outcome, Request
from coordinators.groups.answers import HeartbeatAnswer
from coordinators.groups.requests import Heartbeat
from protocol.acl import AclOperation
from protocol.lean_named_tuple import NamedTuple
from protocol.typed_requests import typed

if TYPE_CHECKING:
    from broker.services import Services

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
