"""A member of the consumer protocol (KIP-848): takes what it is given, lets go first, is fenced, comes late."""

from __future__ import annotations

import asyncio
from typing import Final

from echoless.coordinators.groups.consumer.requests import (
    JOINS,
    LEAVES,
    LEAVES_FOR_A_WHILE,
    UNCHANGED,
    ConsumerHeartbeat,
    ConsumerHeartbeatAnswer,
)
from echoless.protocol.errors import ErrorCode
from tests.simulation.clients import REQUEST_TIMEOUT_S, Client
from tests.simulation.connection import ClientConnection
from tests.simulation.groups.member import ELSEWHERE, REBALANCE_S, Member
from tests.simulation.groups.seen import Holding, Place, Seen
from tests.simulation.observations import Spot

TOPIC: Final = "t"
UNRELEASED_S: Final = 1.0
Partitions = frozenset[tuple[bytes, int]]
_NOTHING: Final[Partitions] = frozenset()


class ConsumerMember(Member):
    """A consumer of one topic."""

    def __init__(
        self, client: Client, seen: Seen, group_id: str, spot: Spot, instance_id: str | None = None
    ) -> None:
        super().__init__(client, seen, group_id, spot)
        self._instance_id = instance_id
        self._incarnation = 0
        self._holdings: dict[tuple[bytes, int], Holding] = {}
        self._restart()

    def _restart(self) -> None:
        """Begins as another process."""
        self._incarnation += 1
        self.member_id = f"{self.client.name}.{self._incarnation}"
        self._former: tuple[Place, int] | None = None
        """A partition that it had, and its epoch then."""
        self._rejoin()

    def _rejoin(self) -> None:
        """Owns nothing any more, and joins under the same id."""
        self._let_go(frozenset(self._holdings))
        self.epoch = JOINS
        self._target: Partitions = _NOTHING
        self._must_send_all = True

    @property
    def owned(self) -> Partitions:
        return frozenset(self._holdings)

    @property
    def has_all_it_is_to_have(self) -> bool:
        return self.epoch > JOINS and self.owned == self._target

    def _let_go(self, partitions: Partitions) -> None:
        for partition in sorted(partitions):
            holding = self._holdings.pop(partition)
            holding.ended_at = self.seen.now()
            self._former = holding.place, self.epoch

    def _take(self, partitions: Partitions) -> None:
        for partition in sorted(partitions):
            place = TOPIC, partition[1]
            self._holdings[partition] = self.seen.take(
                self.group_id, place, self.member_id, self.epoch
            )

    def interrupted(self) -> None:
        self._must_send_all = True

    async def step(self, connection: ClientConnection) -> ErrorCode:
        if self.happens(0.02):
            self._restart()
        if self.epoch > JOINS and self.happens(0.02):
            return await self._leave(connection)
        if self._holdings and self.happens(0.4):
            return await self._use(connection)
        code = await self._heartbeat(connection)
        await self._react(code)
        await self.pause()
        return code

    async def _react(self, code: ErrorCode) -> None:
        match code:
            case ErrorCode.NONE:
                return
            case ErrorCode.FENCED_MEMBER_EPOCH | ErrorCode.UNKNOWN_MEMBER_ID:
                self._rejoin()
            case ErrorCode.GROUP_ID_NOT_FOUND:
                self._rejoin()
            case ErrorCode.UNRELEASED_INSTANCE_ID | ErrorCode.FENCED_INSTANCE_ID:
                self._restart()
                await asyncio.sleep(UNRELEASED_S)
            case _ if code not in ELSEWHERE:
                self.surprised("a heartbeat", code)

    # --- what it asks

    async def _heartbeat(self, connection: ClientConnection) -> ErrorCode:
        asked_at, sends_all = self.seen.now(), self._must_send_all
        request = ConsumerHeartbeat(
            group_id=self.group_id,
            member_id=self.member_id,
            member_epoch=self.epoch,
            instance_id=self._instance_id,
            rack_id=None,
            rebalance_timeout_ms=round(REBALANCE_S * 1000) if sends_all else UNCHANGED,
            topic_names=(TOPIC,) if sends_all else None,
            topic_regex=None,
            assignor=None,
            owned=self.owned,
            client_id=self.client.name,
            client_host="/h",
            uuid="",
        )
        # A late request to join cannot be told from a member that was fenced and joins again.
        connection.may_arrive_late = self.epoch > JOINS
        answer: ConsumerHeartbeatAnswer = await self.ask(connection, request, REQUEST_TIMEOUT_S)
        if answer.error_code is ErrorCode.NONE:
            self.seen.answered_at[self.member_id] = asked_at
            self._must_send_all = False
            await self._follow(answer)
        return answer.error_code

    async def _follow(self, answer: ConsumerHeartbeatAnswer) -> None:
        """Lets go of what it is not to have any more, sooner or later, and takes what it is given."""
        self.epoch = answer.member_epoch
        if answer.assignment is None:
            return
        self._target = answer.assignment
        if self.owned - self._target:
            await self.pause(0.0, 1.0)
            self._let_go(self.owned - self._target)
        self._take(self._target - self.owned)

    async def _use(self, connection: ClientConnection) -> ErrorCode:
        """Commits what it owns, or what it had before, or reads back."""
        rng = self.client.rng
        place = self._holdings[rng.choice(sorted(self._holdings))].place
        if self.happens(0.3):
            code = await self.read(connection, place, self.member_id, self.epoch)
        elif self._former is not None and self.happens(0.3):
            former, epoch = self._former
            code = await self.commit(connection, former, self.member_id, epoch)
        else:
            code = await self.commit(connection, place, self.member_id, self.epoch)
        # A refusal says no more than the next heartbeat will.
        return code if code in ELSEWHERE else ErrorCode.NONE

    async def _leave(self, connection: ClientConnection) -> ErrorCode:
        """Leaves, a static member for a while or for good, and begins as another process."""
        for_a_while = self._instance_id is not None and self.client.rng.random() < 1 / 2
        epoch = LEAVES_FOR_A_WHILE if for_a_while else LEAVES
        self._let_go(self.owned)
        request = ConsumerHeartbeat(
            group_id=self.group_id,
            member_id=self.member_id,
            member_epoch=epoch,
            instance_id=self._instance_id,
            rack_id=None,
            rebalance_timeout_ms=UNCHANGED,
            topic_names=None,
            topic_regex=None,
            assignor=None,
            owned=None,
            client_id=self.client.name,
            client_host="/h",
            uuid="",
        )
        self._restart()
        await self.ask(connection, request, REQUEST_TIMEOUT_S)
        return ErrorCode.NONE
