"""Handlers of group requests that must not overtake a commit of many partitions on their connection."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from echoless.broker.network.order import LanePlace
from echoless.broker.network.request import Answer, NeedsNoFrame, Outcome, Request

if TYPE_CHECKING:
    from echoless.broker.services import Services

_Handle = Callable[[Request, "Services"], Outcome]


def after_commits(handle: _Handle) -> _Handle:
    """The same handler, called once the commits before the request have reached their coordinators."""

    def handle_in_order(request: Request, services: Services) -> Outcome:
        commits = request.peer.order.commits
        if not commits.places:
            return handle(request, services)
        return NeedsNoFrame(_handle_later(commits.enter(), handle, request, services))

    return handle_in_order


async def _handle_later(
    place: LanePlace, handle: _Handle, request: Request, services: Services
) -> Answer:
    with place:
        await place.come()
        outcome = handle(request, services)
    return await outcome if isinstance(outcome, Awaitable) else outcome
