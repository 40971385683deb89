"""Responses from the answers of groups' coordinators, now or later, for all APIs of consumer groups."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from broker.network.request import Answer, NeedsNoFrame, Outcome
from broker.network.turns import ROWS_PER_TURN, ManyRows, work_in_turns

if TYPE_CHECKING:
    from broker.services import Services
    from coordinators.groups.answers import GroupAnswer
    from coordinators.groups.requests import GroupRequest

A = TypeVar("A")


def translated(answered: Any, translate: Callable[[Any], Answer]) -> Outcome:
    """The response to an answer of `Groups.ask`; a wait for it needs no memory for the request."""
    if isinstance(answered, Coroutine):
        return NeedsNoFrame(_translated_later(answered, translate))
    return translate(answered)


async def _translated_later(
    answered: Coroutine[Any, Any, A], translate: Callable[[A], Answer]
) -> Answer:
    return translate(await answered)


def with_rows(fields: dict[str, Any], rows: Sequence[Any]) -> dict[str, Any]:
    """The response; marked as one with many rows if these are many, so that it is encoded in a thread."""
    return ManyRows(fields) if len(rows) > ROWS_PER_TURN else fields


async def ask_all(services: Services, requests: Iterable[GroupRequest]) -> list[GroupAnswer]:
    """The answers to all requests, in their order. They are processed at the same time."""
    answers: list[Any] = []
    await work_in_turns(map(answers.append, map(services.groups.ask, requests)))
    later = [(place, one) for place, one in enumerate(answers) if isinstance(one, Coroutine)]
    if later:
        found = await asyncio.gather(*(one for _, one in later))
        for (place, _), answer in zip(later, found, strict=True):
            answers[place] = answer
    return answers
