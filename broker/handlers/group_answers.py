"""Responses from the answers of groups' coordinators, now or later, for all APIs of consumer groups."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar

from echoless.broker.handlers.permits import rights_of
from echoless.broker.network.promise import Promise
from echoless.broker.network.request import Answer, NeedsNoFrame, Outcome, Request
from echoless.broker.network.turns import ROWS_PER_TURN, ManyRows, work_in_turns
from echoless.protocol.acl import AclOperation, ResourceType

if TYPE_CHECKING:
    from echoless.broker.authorization.access import Rights
    from echoless.broker.services import Services
    from echoless.coordinators.groups.answers import GroupAnswer
    from echoless.coordinators.groups.requests import GroupRequest

A = TypeVar("A")
_ENCODED_AT_ONCE_BYTES: Final = 64 * 1024
_AWAITED_TOGETHER: Final = 200
"""Answers still to come that are awaited together: a future is made for each."""


def translated(answered: Any, translate: Callable[[Any], Answer]) -> Outcome:
    """The response to an answer of `GroupService.ask`; a wait for it needs no memory for the request."""
    if isinstance(answered, Awaitable):
        return NeedsNoFrame(_translated_later(answered, translate))
    return translate(answered)


def packed(answered: Any, pack: Callable[[Any], bytes]) -> Outcome:
    """The same for a response that is packed by hand: a wait for the coordinator needs no task either."""
    if isinstance(answered, Promise):
        return answered.then(pack)
    return translated(answered, pack)


async def _translated_later(answered: Awaitable[A], translate: Callable[[A], Answer]) -> Answer:
    return translate(await answered)


def with_rows(fields: dict[str, Any], rows: Sequence[Any], size: int = 0) -> dict[str, Any]:
    """The response; marked as one with many rows if these are many, or `size` bytes, so that it is encoded in a thread."""
    is_long = len(rows) > ROWS_PER_TURN or size > _ENCODED_AT_ONCE_BYTES
    return ManyRows(fields) if is_long else fields


async def described(
    request: Request,
    names: Iterable[str],
    services: Services,
    ask: Callable[[str], GroupRequest],
) -> tuple[Rights | None, dict[str, GroupAnswer | None]]:
    """The rights of the caller, and the answer about each group; None where it may not describe the group."""
    answers: dict[str, GroupAnswer | None] = dict.fromkeys(names)
    rights, allowed = rights_of(request, services), list(answers)
    if rights is not None:
        allowed = await allowed_groups(rights, AclOperation.DESCRIBE, allowed)
    answers.update(zip(allowed, await ask_all(services, map(ask, allowed)), strict=True))
    return rights, answers


async def allowed_groups(
    rights: Rights, operation: AclOperation, names: Iterable[str]
) -> list[str]:
    """Returns the groups on which the client may do the operation; a name is judged at a time."""
    may, found = rights.allowed(operation, ResourceType.GROUP), list[str]()

    def judge(name: str) -> None:
        if may[name]:
            found.append(name)

    await work_in_turns(map(judge, names))
    return found


async def ask_all(services: Services, requests: Iterable[GroupRequest]) -> list[GroupAnswer]:
    """The answers to all requests, in their order. They are processed at the same time."""
    answers: list[Any] = []
    await work_in_turns(map(answers.append, map(services.groups.ask, requests)))
    later = [(place, one) for place, one in enumerate(answers) if isinstance(one, Awaitable)]
    for begin in range(0, len(later), _AWAITED_TOGETHER):
        some = later[begin : begin + _AWAITED_TOGETHER]
        found = await asyncio.gather(*(one for _, one in some))
        for (place, _), answer in zip(some, found, strict=True):
            answers[place] = answer
    return answers
