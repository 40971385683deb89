"""DescribeGroups (15), versions 0-6: the state of consumer groups and their members.

v1-2: as they are. v3 (KIP-430): authorised operations. v4 (KIP-345): static members. v5: flexible. v6
(KIP-1043): GROUP_ID_NOT_FOUND and a message for an unknown group, which is `Dead` without an error before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from echoless.broker.handlers import permits
from echoless.broker.handlers.answer_room import NO_ROOM, AnswerRoom
from echoless.broker.handlers.apis import declared
from echoless.broker.handlers.authorized_operations import NOT_ASKED, group_operations
from echoless.broker.handlers.group_answers import described, with_rows
from echoless.broker.handlers.permits import denied
from echoless.broker.handlers.refusals import Refusal
from echoless.broker.handlers.served import Served
from echoless.broker.network.request import Answer, Request
from echoless.broker.network.turns import work_in_turns
from echoless.coordinators.groups.answers import DescribeAnswer
from echoless.coordinators.groups.requests import DescribeGroup
from echoless.protocol.acl import AclOperation, ResourceType
from echoless.protocol.errors import ErrorCode
from echoless.protocol.typed_requests import typed

if TYPE_CHECKING:
    from echoless.broker.services import Services

API = declared(__name__)

_NOT_FOUND_FROM: Final = 6


class DescribeGroupsRequest(NamedTuple):
    groups: tuple[str, ...]
    include_authorized_operations: bool = False


async def handle(request: Request, services: Services) -> Answer:
    """One row per group."""
    body, version = typed(DescribeGroupsRequest, request.body), request.version
    rights, answers = await described(request, body.groups, services, DescribeGroup)
    found: list[dict[str, Any]] = []
    left = AnswerRoom()
    refused = _error(denied(AclOperation.DESCRIBE, ResourceType.GROUP).code)

    def describe(name: str) -> None:
        answer = answers[name]
        assert answer is None or isinstance(answer, DescribeAnswer)
        if answer is None:
            row = refused
        elif not left:
            row = _error(NO_ROOM)
        else:
            operations = group_operations(rights, name, asked=body.include_authorized_operations)
            row = {**_row(version, name, answer), "authorized_operations": operations}
            left.take(sum([len(one.metadata) + len(one.assignment) for one in answer.members]))
        found.append({"group_id": name, **row})

    await work_in_turns(map(describe, answers))
    rows = len(found) + sum([len(row["members"]) for row in found])
    return with_rows({"groups": found}, range(rows), left.used)


def _row(version: int, name: str, answer: DescribeAnswer) -> dict[str, Any]:
    code = answer.error_code
    is_missing = code is ErrorCode.GROUP_ID_NOT_FOUND
    if is_missing and version < _NOT_FOUND_FROM:
        code = ErrorCode.NONE
    return {
        "error_code": code,
        "error_message": f"Group {name} not found." if is_missing else None,
        "group_state": answer.state,
        "protocol_type": answer.protocol_type,
        "protocol_data": answer.protocol_name,
        "members": [
            {
                "member_id": one.member_id,
                "group_instance_id": one.group_instance_id,
                "client_id": one.client_id,
                "client_host": one.client_host,
                "member_metadata": one.metadata,
                "member_assignment": one.assignment,
            }
            for one in answer.members
        ],
    }


def _error(code: ErrorCode) -> dict[str, Any]:
    return {
        "error_code": code,
        "error_message": None,
        "group_state": "",
        "protocol_type": "",
        "protocol_data": "",
        "members": (),
        "authorized_operations": NOT_ASKED,
    }


def refuse(refusal: Refusal, _services: Services) -> Answer:
    """The error of each group."""
    row = _error(refusal.error.code)
    names = dict.fromkeys(refusal.request.body.groups)
    return {"groups": [{"group_id": name, **row} for name in names]}


SERVED = Served(API, handle, refuse, permit=permits.asked_by_handler)
