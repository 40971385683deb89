"""AlterUserScramCredentials (51), version 0 (KIP-554): gives users SCRAM credentials, and takes them away.

The client salts the password itself; the broker never sees it. Every broker serves it: the tree orders changes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from echoless.broker.authentication.user_nodes import alter_user
from echoless.broker.handlers import permits
from echoless.broker.handlers.apis import declared
from echoless.broker.handlers.describe_user_scram_credentials import SCRAM_IDS
from echoless.broker.handlers.refusals import Refusal
from echoless.broker.handlers.served import Served
from echoless.broker.metadata.config_nodes import is_storable
from echoless.broker.network.request import Answer, Request
from echoless.broker.network.turns import awaited_in_turns, work_in_turns
from echoless.broker.tree.node_tree import CoordinationError
from echoless.protocol.acl import AclOperation
from echoless.protocol.errors import ErrorCode, KafkaError
from echoless.protocol.sasl.scram import ITERATIONS_MAX, ITERATIONS_MIN, credential_of

if TYPE_CHECKING:
    from echoless.broker.services import Services

API = declared(__name__)

USERS_MAX: Final = 1000
"""Users that one request may change: each is written by itself."""


class _Changes(NamedTuple):
    """The changes of one user."""

    deletions: list[Any]
    upsertions: list[Any]


async def handle(request: Request, services: Services) -> Answer:
    """A row for each user: all of its changes are made, or none."""
    changes: dict[str, _Changes] = {}
    await work_in_turns(_group(request.body, changes))
    rows = (
        _row(services, user, one, is_beyond=number >= USERS_MAX)
        for number, (user, one) in enumerate(changes.items())
    )
    return await awaited_in_turns(rows, lambda found: {"results": found})


def _group(body: Any, changes: dict[str, _Changes]) -> Iterator[None]:
    """Adds one change to those of its user at each step."""
    for one in body.deletions:
        changes.setdefault(one.name, _Changes([], [])).deletions.append(one)
        yield
    for one in body.upsertions:
        changes.setdefault(one.name, _Changes([], [])).upsertions.append(one)
        yield


async def _row(
    services: Services, user: str, changes: _Changes, *, is_beyond: bool
) -> dict[str, Any]:
    code, message = ErrorCode.NONE, None
    try:
        _check(user, changes, is_beyond=is_beyond)
        await _alter(services, user, changes)
    except KafkaError as error:
        code, message = error.code, error.message
    except CoordinationError as error:
        code, message = ErrorCode.COORDINATOR_NOT_AVAILABLE, str(error)
    return {"user": user, "error_code": code, "error_message": message}


def refuse(refusal: Refusal, _services: Services) -> Answer:
    """The error in the row of each user."""
    body = refusal.request.body
    users = dict.fromkeys(one.name for one in (*body.deletions, *body.upsertions))
    return {"results": [{"user": user, **refusal.row} for user in users]}


def _check(user: str, changes: _Changes, *, is_beyond: bool) -> None:
    """Raises `KafkaError` for the first of a user's changes that cannot be made."""
    if is_beyond:
        message = f"at most {USERS_MAX} users are changed by one request"
        raise KafkaError(ErrorCode.INVALID_REQUEST, message)
    if not user:
        raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty")
    if not is_storable(user):
        raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, f"A user cannot be called {user!r}")
    counts = Counter(one.mechanism for one in (*changes.deletions, *changes.upsertions))
    if counts.keys() - SCRAM_IDS.keys():
        raise KafkaError(ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism")
    for one in changes.upsertions:
        if one.iterations < ITERATIONS_MIN:
            raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too few iterations")
        if one.iterations > ITERATIONS_MAX:
            raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too many iterations")
    if max(counts.values()) > 1:
        raise KafkaError(
            ErrorCode.DUPLICATE_RESOURCE,
            "A user credential cannot be altered twice in the same request",
        )


async def _alter(services: Services, user: str, changes: _Changes) -> None:
    credentials = {}
    for one in changes.upsertions:
        mechanism = SCRAM_IDS[one.mechanism]
        credentials[mechanism] = credential_of(
            mechanism, one.salted_password, one.salt, one.iterations
        )
    removed = [SCRAM_IDS[one.mechanism] for one in changes.deletions]
    await alter_user(services.tree, user, credentials, removed)


SERVED = Served(API, handle, refuse, permit=permits.cluster(AclOperation.ALTER))
