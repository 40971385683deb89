"""DeleteGroups (42), versions 0-2: deletes consumer groups that have no members, with their offsets (KIP-229).

v1: no change. v2: flexible.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from echoless.broker.handlers import permits
from echoless.broker.handlers.apis import declared
from echoless.broker.handlers.group_answers import allowed_groups, ask_all, with_rows
from echoless.broker.handlers.permits import denied, rights_of
from echoless.broker.handlers.refusals import Refusal
from echoless.broker.handlers.served import Served
from echoless.broker.network.request import Answer, Request
from echoless.broker.network.turns import work_in_turns
from echoless.coordinators.groups.answers import DeleteAnswer
from echoless.coordinators.groups.requests import DeleteGroup
from echoless.protocol.acl import AclOperation, ResourceType
from echoless.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from echoless.broker.services import Services

API = declared(__name__)


async def handle(request: Request, services: Services) -> Answer:
    """One row per group."""
    names = tuple(dict.fromkeys(request.body.groups_names))
    rights, allowed = rights_of(request, services), names
    codes: dict[str, ErrorCode] = {}
    if rights is not None:
        allowed = tuple(await allowed_groups(rights, AclOperation.DELETE, names))
        error = denied(AclOperation.DELETE, ResourceType.GROUP)
        codes = dict.fromkeys(names, error.code)
    answers = await ask_all(services, map(DeleteGroup, allowed))
    for name, answer in zip(allowed, answers, strict=True):
        assert isinstance(answer, DeleteAnswer)
        codes[name] = answer.error_code
    rows: list[dict[str, Any]] = []
    await work_in_turns(map(rows.append, (_row(name, codes[name]) for name in names)))
    return with_rows({"results": rows}, rows)


def _row(name: str, code: ErrorCode) -> dict[str, Any]:
    return {"group_id": name, "error_code": code}


def _fields(codes: Iterable[tuple[str, ErrorCode]]) -> dict[str, Any]:
    rows = [_row(name, code) for name, code in codes]
    return with_rows({"results": rows}, rows)


def refuse(refusal: Refusal, _services: Services) -> Answer:
    """The error of each group."""
    names = dict.fromkeys(refusal.request.body.groups_names)
    return _fields((name, refusal.error.code) for name in names)


SERVED = Served(API, handle, refuse, permit=permits.asked_by_handler)
