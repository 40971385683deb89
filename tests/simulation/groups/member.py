"""A client of a group: finds the coordinator, takes part until that moves, and has accidents."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from typing import Any, Final

from echoless.coordinators.groups.answers import OffsetCommitAnswer, OffsetFetchAnswer
from echoless.coordinators.groups.requests import (
    CommittedPartition,
    GroupRequest,
    OffsetCommit,
    OffsetFetch,
)
from echoless.protocol.errors import ErrorCode
from tests.simulation.clients import REQUEST_TIMEOUT_S, Client, NoAnswerError
from tests.simulation.connection import ClientConnection
from tests.simulation.groups.seen import Place, Read, Seen
from tests.simulation.observations import Spot

SESSION_S: Final = 3.0
REBALANCE_S: Final = 4.0
ELSEWHERE: Final = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    }
)
"""Codes after which a client looks for the coordinator again."""


class Member(ABC):
    """One consumer process after the other, in one place."""

    def __init__(self, client: Client, seen: Seen, group_id: str, spot: Spot) -> None:
        """`spot`: the partition of `__consumer_offsets` that keeps the group."""
        self.client = client
        self.seen = seen
        self.group_id = group_id
        self.is_calm = False
        """Whether it does nothing any more but take part."""
        self.is_wanted = True
        self._spot = spot

    def __repr__(self) -> str:
        return f"{self.client.name} of {self.group_id}"

    @abstractmethod
    async def step(self, connection: ClientConnection) -> ErrorCode:
        """Does what a consumer does next. Returns what its coordinator said. Raises `NoAnswerError`."""

    def interrupted(self) -> None:  # noqa: B027 - most members need not know
        """Notes that no answer came to what was asked last."""

    async def run(self) -> None:
        """Runs until it is not wanted."""
        client = self.client
        while self.is_wanted:
            node = await client.leader_of(self._spot)
            try:
                connection = client.connection(node)
                while self.is_wanted and await self.step(connection) not in ELSEWHERE:
                    pass
            except NoAnswerError:
                self.interrupted()
            await client.back_off()

    async def pause(self, shortest_s: float = 0.1, longest_s: float = 0.5) -> None:
        await asyncio.sleep(self.client.rng.uniform(shortest_s, longest_s))

    def happens(self, probability: float) -> bool:
        """Whether something out of the ordinary happens."""
        return not self.is_calm and self.client.rng.random() < probability

    def surprised(self, what: str, code: ErrorCode) -> None:
        """A code came that no coordinator may give here."""
        self.client.observations.find(f"{self}: {what} was answered {code!r}")

    async def ask(
        self, connection: ClientConnection, request: GroupRequest, timeout_s: float
    ) -> Any:
        """The coordinator's answer. Raises `NoAnswerError`."""
        return await self.client.answered(connection, connection.ask_group(request), timeout_s)

    async def commit(
        self,
        connection: ClientConnection,
        place: Place,
        member_id: str,
        epoch: int,
        instance_id: str | None = None,
    ) -> ErrorCode:
        """Commits an offset that no one commits but this time. Raises `NoAnswerError`."""
        commit = self.seen.new_commit(self.group_id, place, member_id, epoch)
        rows = (CommittedPartition(*place, commit.offset),)
        request = OffsetCommit(
            self.group_id, epoch, member_id, instance_id, rows, knows_missing_groups=True
        )
        answer: OffsetCommitAnswer = await self.ask(connection, request, REQUEST_TIMEOUT_S)
        (commit.code,) = answer.error_codes
        commit.answered_at = self.seen.now()
        return commit.code

    async def read(
        self, connection: ClientConnection, place: Place, member_id: str | None, epoch: int
    ) -> ErrorCode:
        """Reads the committed offset back. Raises `NoAnswerError`."""
        began_at = self.seen.now()
        request = OffsetFetch(self.group_id, (place,), True, member_id, epoch)
        answer: OffsetFetchAnswer = await self.ask(connection, request, REQUEST_TIMEOUT_S)
        if answer.error_code is not ErrorCode.NONE:
            return answer.error_code
        (row,) = answer.partitions
        if row.error_code is ErrorCode.NONE:
            read = Read(self.group_id, place, row.offset, began_at, self.seen.now())
            self.seen.reads.append(read)
        return row.error_code


class Committer(Member):
    """Commits to a group without members, and reads back."""

    def __init__(self, client: Client, seen: Seen, group_id: str, spot: Spot, place: Place) -> None:
        super().__init__(client, seen, group_id, spot)
        self._place = place

    async def step(self, connection: ClientConnection) -> ErrorCode:
        await self.pause()
        if self.is_calm or self.client.rng.random() < 1 / 2:
            return await self.read(connection, self._place, None, -1)
        return await self.commit(connection, self._place, "", -1)
