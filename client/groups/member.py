"""A member of a consumer group: joins, keeps its session, and says when its generation is over.

Invariant: a request that changes what the group has committed carries the member id and the generation under
which the caller was assigned its partitions, also when it is repeated; never those of a later generation, and
never none.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from echoless.client.coordinator import MOVED, Backoff, Coordinator
from echoless.client.groups.assignment import (
    PROTOCOL_TYPE,
    Partition,
    assign,
    read_assignment,
    read_subscription,
    write_assignment,
    write_subscription,
)
from echoless.client.groups.errors import GroupError, group_error
from echoless.client.lease_keeper import elapsed_s
from echoless.protocol.errors import ErrorCode

_LOG: Final = logging.getLogger(__name__)
_HEARTBEATS_PER_SESSION: Final = 3
_REJOIN: Final = frozenset({ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.ILLEGAL_GENERATION})
OVER: Final = frozenset(
    {
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.REBALANCE_IN_PROGRESS,
        ErrorCode.FENCED_INSTANCE_ID,
    }
)
"""Codes that refuse a request because of its generation or member."""


@dataclass(slots=True, frozen=True, kw_only=True)
class MemberSettings:
    """The settings of a member. Times in seconds."""

    group: str
    protocol: str
    """The name of the assignor: members of other names are refused by the group."""
    instance_id: str | None = None
    """With one, a restart within the session keeps the partitions (KIP-345)."""
    session_timeout_s: float = 10.0
    rebalance_timeout_s: float = 60.0
    """The time that a rebalance waits for this member to finish its work and join."""
    request_timeout_s: float = 10.0


@dataclass(slots=True, eq=False)
class Generation:
    """One generation, from its assignment to its end."""

    number: int
    member_id: str
    partitions: Sequence[Partition]
    confirmed_at_s: float
    """When the last request was sent that the coordinator answered as this generation's."""
    must_rejoin: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when a rebalance has begun or the member is no longer known."""
    is_over: bool = False
    """Whether the group has refused this generation or member: nothing can be committed any more."""
    unanswered_commits: int = 0
    """Commits of which a copy may still arrive at the coordinator."""

    def end(self) -> None:
        self.is_over = True
        self.must_rejoin.set()


class GroupMember:
    """One member. Used by one task, which calls `join` again whenever a generation must be left."""

    def __init__(
        self,
        coordinator: Coordinator,
        settings: MemberSettings,
        count_partitions: Callable[[Sequence[str]], Awaitable[Mapping[str, int]]],
        *,
        clock_s: Callable[[], float] = elapsed_s,
    ) -> None:
        """`count_partitions` is asked, for all members' topics, if this member has to assign."""
        self._coordinator = coordinator
        self._settings = settings
        self._count_partitions = count_partitions
        self._clock_s = clock_s
        self._member_id = ""
        self._beating: asyncio.Task[None] | None = None

    async def join(self, topics: Sequence[str]) -> Generation:
        """Joins, or joins again; waits for the other members. Raises `GroupError`."""
        await self._stop_beating()
        backoff = Backoff()
        while True:
            generation = await self._try_to_join(topics)
            if generation is not None:
                break
            await backoff.pause()
        _LOG.info(
            "group %s: generation %d has assigned %d partitions to %s",
            *(self._settings.group, generation.number),
            *(len(generation.partitions), generation.member_id),
        )
        beating = asyncio.get_running_loop().create_task(self._beat(generation))
        beating.add_done_callback(lambda _: generation.must_rejoin.set())
        self._beating = beating
        return generation

    async def check(self) -> None:
        """Raises the `GroupError` that has ended the heartbeats, if there was one."""
        if self._beating is not None and self._beating.done():
            await self._beating

    async def leave(self) -> None:
        """Leaves at once, so that the others need not wait for the session's end; a static member stays.

        Takes `request_timeout_s` at most, also if no broker says where the coordinator is. The next `join` is that of a new
        member: what this one has sent and is still under way comes too late.
        """
        await self._stop_beating()
        member_id, self._member_id = self._member_id, ""
        if not member_id or self._settings.instance_id is not None:
            return
        one = {"member_id": member_id, "group_instance_id": None, "reason": None}
        fields = {"group_id": self._settings.group, "member_id": member_id, "members": [one]}
        with contextlib.suppress(TimeoutError):  # the session ends anyway
            async with asyncio.timeout(self._settings.request_timeout_s):
                await self._coordinator.ask("leave_group", fields)

    async def _stop_beating(self) -> None:
        if self._beating is not None:
            self._beating.cancel()
            await asyncio.gather(self._beating, return_exceptions=True)
            self._beating = None

    async def _try_to_join(self, topics: Sequence[str]) -> Generation | None:
        """One JoinGroup and SyncGroup; None if they have to be repeated, after a pause."""
        joined = await self._join_once(topics)
        if joined is None:
            return None
        assignments = []
        if joined.leader == joined.member_id:
            assignments = await self._assigned(joined)
        return await self._sync(joined, assignments)

    async def _join_once(self, topics: Sequence[str]) -> Any:
        settings = self._settings
        protocol = {"name": settings.protocol, "metadata": write_subscription(topics)}
        fields = {
            "group_id": settings.group,
            "session_timeout": round(settings.session_timeout_s * 1000),
            "rebalance_timeout": round(settings.rebalance_timeout_s * 1000),
            "member_id": self._member_id,
            "group_instance_id": settings.instance_id,
            "protocol_type": PROTOCOL_TYPE,
            "protocols": [protocol],
            "reason": None,
        }
        patience_s = settings.rebalance_timeout_s + settings.request_timeout_s
        answer = await self._coordinator.ask("join_group", fields, timeout_s=patience_s)
        if answer is None:
            return None
        code = answer.error_code.value
        if code == ErrorCode.NONE:
            self._member_id = answer.member_id
            return answer
        if code == ErrorCode.MEMBER_ID_REQUIRED:
            self._member_id = answer.member_id
            return await self._join_once(topics)
        if code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL:
            raise GroupError(
                f"group {settings.group}: has members of another kind, which do not assign by "
                f"{settings.protocol}; use a group of its own",
                code,
            )
        self._take(answer.error_code, "joining")
        return None

    async def _assigned(self, joined: Any) -> list[dict[str, Any]]:
        """The leader's work: the assignment of every member."""
        wishes = {one.member_id: read_subscription(one.metadata) for one in joined.members}
        topics = sorted({topic for wanted in wishes.values() for topic in wanted})
        counts = await self._count_partitions(topics)
        return [
            {"member_id": member, "assignment": write_assignment(partitions)}
            for member, partitions in assign(wishes, counts).items()
        ]

    async def _sync(self, joined: Any, assignments: list[dict[str, Any]]) -> Generation | None:
        fields = {
            "group_id": self._settings.group,
            "generation_id": joined.generation_id,
            "member_id": joined.member_id,
            "group_instance_id": self._settings.instance_id,
            "protocol_type": PROTOCOL_TYPE,
            "protocol_name": self._settings.protocol,
            "assignments": assignments,
        }
        asked_at_s = self._clock_s()
        # No longer than the session, which ends if the answer is lost.
        patience_s = self._settings.session_timeout_s
        answer = await self._coordinator.ask("sync_group", fields, timeout_s=patience_s)
        if answer is None or answer.error_code.value in _REJOIN:
            return None
        if answer.error_code.value:
            self._take(answer.error_code, "its assignment")
            return None
        return Generation(
            number=joined.generation_id,
            member_id=joined.member_id,
            partitions=read_assignment(answer.assignment),
            confirmed_at_s=asked_at_s,
        )

    def _take(self, error_code: Any, what: str) -> None:
        """Prepares for the next attempt. Raises `GroupError` if there is no use in one."""
        code = error_code.value
        if code == ErrorCode.UNKNOWN_MEMBER_ID:
            self._member_id = ""
        elif code in MOVED:
            self._coordinator.forget()
        elif code != ErrorCode.REBALANCE_IN_PROGRESS:
            raise group_error(self._settings.group, what, error_code)

    async def _beat(self, generation: Generation) -> None:
        """Keeps the session until the generation is over. Raises `GroupError`."""
        fields = {
            "group_id": self._settings.group,
            "generation_id": generation.number,
            "member_id": generation.member_id,
            "group_instance_id": self._settings.instance_id,
        }
        while not generation.is_over:
            await asyncio.sleep(self._settings.session_timeout_s / _HEARTBEATS_PER_SESSION)
            asked_at_s = self._clock_s()
            answer = await self._coordinator.ask("heartbeat", fields)
            if answer is None:
                continue
            code = answer.error_code.value
            if code in (ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS):
                generation.confirmed_at_s = asked_at_s
            if code == ErrorCode.REBALANCE_IN_PROGRESS:
                generation.must_rejoin.set()
            elif code in (ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_MEMBER_ID):
                generation.end()
            elif code in MOVED:
                self._coordinator.forget()
            elif code:
                generation.end()
                raise group_error(self._settings.group, "its session", answer.error_code)
