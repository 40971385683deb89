"""DescribeUserScramCredentials (50), version 0 (KIP-554): which users can log in by SCRAM, and how.

Neither salts nor keys are in the answer. What knows of users is imported by the first request.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from echoless.broker.authentication.user_nodes import credentials_in, read_users
from echoless.broker.handlers import permits
from echoless.broker.handlers.apis import declared
from echoless.broker.handlers.refusals import Refusal
from echoless.broker.handlers.served import Served
from echoless.broker.network.request import Answer, Request
from echoless.broker.network.turns import in_turns
from echoless.broker.tree.node_tree import CoordinationError
from echoless.protocol.acl import AclOperation
from echoless.protocol.errors import ErrorCode
from echoless.protocol.sasl.mechanism import Mechanism

if TYPE_CHECKING:
    from echoless.broker.services import Services

API = declared(__name__)

SCRAM_IDS: Final[Mapping[int, Mechanism]] = {
    1: Mechanism.SCRAM_SHA_256,
    2: Mechanism.SCRAM_SHA_512,
}
"""The mechanisms by their ids in these requests."""
Users = Mapping[str, Mapping[str, str]]
"""The configuration of each user."""


async def handle(request: Request, services: Services) -> Answer:
    """All users that have a credential, sorted, or a row for each that is named."""
    try:
        users = await read_users(services.tree)
    except CoordinationError as error:
        return _answer(ErrorCode.COORDINATOR_NOT_AVAILABLE, str(error), [])
    named = [one.name for one in request.body.users or ()]
    rows = _rows_of(named, users) if named else _rows_of_all(users)
    answer = in_turns(rows, lambda found: _answer(ErrorCode.NONE, None, found))
    return await answer if isinstance(answer, Awaitable) else answer


def _rows_of_all(users: Users) -> Iterator[dict[str, Any]]:
    rows = (_row(name, users[name]) for name in sorted(users))
    return (row for row in rows if row["credential_infos"])


def _rows_of(named: Iterable[str], users: Users) -> Iterator[dict[str, Any]]:
    for name, count in Counter(named).items():
        yield _twice(name) if count > 1 else _row(name, users.get(name, {}))


def refuse(refusal: Refusal, _services: Services) -> Answer:
    """The error of the whole request."""
    return _answer(refusal.error.code, refusal.error.message or None, [])


def _answer(code: ErrorCode, message: str | None, results: list[dict[str, Any]]) -> dict[str, Any]:
    return {"error_code": code, "error_message": message, "results": results}


def _row(name: str, config: Mapping[str, str]) -> dict[str, Any]:
    credentials = credentials_in(config)
    infos = [
        {"mechanism": number, "iterations": credentials[mechanism].iterations}
        for number, mechanism in SCRAM_IDS.items()
        if mechanism in credentials
    ]
    if not infos:
        message = f"Attempt to describe a user credential that does not exist: {name}"
        return _failed(name, ErrorCode.RESOURCE_NOT_FOUND, message)
    return {
        "user": name,
        "error_code": ErrorCode.NONE,
        "error_message": None,
        "credential_infos": infos,
    }


def _twice(name: str) -> dict[str, Any]:
    return _failed(
        name,
        ErrorCode.DUPLICATE_RESOURCE,
        f"Cannot describe SCRAM credentials for the same user twice in a single request: {name}",
    )


def _failed(name: str, code: ErrorCode, message: str) -> dict[str, Any]:
    return {"user": name, "error_code": code, "error_message": message, "credential_infos": []}


SERVED = Served(API, handle, refuse, permit=permits.cluster(AclOperation.DESCRIBE))
