"""Changes of single states, written together: those that wait for the same turn are one atomic operation.

When a follower has caught up with thousands of partitions at once, as after a start or a reassignment of all, each is a change
of its own, and a write for each would cost the coordinator a request and every broker an event about the topic.

Invariant: a change has the outcome that it would have alone; if one has lost a race, all are tried again in halves. Called by
`isr_changes.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final, NamedTuple

from echoless.broker.essential_task import essential_task
from echoless.broker.metadata.topic import StateChange
from echoless.broker.metadata.topic_nodes import STATE_CHANGES_MAX
from echoless.broker.metadata.topic_registry import TopicRegistry
from echoless.broker.tree.node_tree import CoordinationError, MultiFailedError

JOINED_MAX: Final = STATE_CHANGES_MAX
"""Changes in one write."""


class _Waiting(NamedTuple):
    change: StateChange
    made: asyncio.Future[None]


class JoinedChanges:
    """Writes one operation at a time; what is asked for meanwhile is in the next one."""

    def __init__(self, registry: TopicRegistry) -> None:
        self._registry = registry
        self._waiting: list[_Waiting] = []
        self._writer: asyncio.Task[None] | None = None

    async def make(self, change: StateChange) -> None:
        """Makes the change, and raises what `TopicRegistry.change_states` raises for it alone."""
        made = asyncio.get_running_loop().create_future()
        self._waiting.append(_Waiting(change, made))
        if self._writer is None:
            self._writer = essential_task(self._write_all(), "joined changes of states")
        await made

    async def close(self) -> None:
        """Gives up what is under way: it may or may not land."""
        if self._writer is not None:
            self._writer.cancel()
            await asyncio.gather(self._writer, return_exceptions=True)

    async def _write_all(self) -> None:
        try:
            while self._waiting:
                some, self._waiting = self._waiting[:JOINED_MAX], self._waiting[JOINED_MAX:]
                await self._write([one for one in some if not one.made.done()])
        finally:
            self._writer = None

    async def _write(self, some: Sequence[_Waiting]) -> None:
        try:
            await self._registry.change_states([one.change for one in some])
        except MultiFailedError as error:
            if len(some) == 1:
                _settle(some, error)
                return
            middle = len(some) // 2
            await self._write(some[:middle])
            await self._write(some[middle:])
        except CoordinationError as error:
            _settle(some, error)
        else:
            _settle(some, None)


def _settle(some: Sequence[_Waiting], error: CoordinationError | None) -> None:
    for one in some:
        if one.made.done():  # its caller was cancelled
            continue
        if error is None:
            one.made.set_result(None)
        else:
            one.made.set_exception(error)
