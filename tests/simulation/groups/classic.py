"""A member of the classic protocol: joins, assigns if it leads, commits, is killed, comes late."""

from __future__ import annotations

import asyncio
import json
from typing import Final

from echoless.coordinators.groups.answers import HeartbeatAnswer, JoinAnswer, SyncAnswer
from echoless.coordinators.groups.requests import (
    Heartbeat,
    JoinGroup,
    LeaveGroup,
    LeavingMember,
    SyncGroup,
)
from echoless.protocol.errors import ErrorCode
from tests.simulation.clients import REQUEST_TIMEOUT_S, Client
from tests.simulation.connection import ClientConnection
from tests.simulation.groups.member import ELSEWHERE, REBALANCE_S, SESSION_S, Member
from tests.simulation.groups.seen import Joined, Place, Seen, Synced
from tests.simulation.observations import Spot

PLACES: Final[tuple[Place, ...]] = tuple(("classic", partition) for partition in range(4))
FENCED_S: Final = 3.0
_JOIN_TIMEOUT_S: Final = REBALANCE_S + 5.0
_NO_GENERATION: Final = -1


class ClassicMember(Member):
    """Clients of the time before KIP-394 join without asking for an id first."""

    def __init__(
        self,
        client: Client,
        seen: Seen,
        group_id: str,
        spot: Spot,
        *,
        instance_id: str | None = None,
        is_old: bool = False,
    ) -> None:
        super().__init__(client, seen, group_id, spot)
        self._instance_id = instance_id
        self._is_old = is_old
        self._incarnation = 0
        self._restart()

    def _restart(self) -> None:
        """Begins as another process."""
        self._incarnation += 1
        self._member_id = ""
        self._generation_id = _NO_GENERATION
        self._former: tuple[str, int] | None = None
        """The id and the generation that it had before."""
        self._rejoin()

    def _rejoin(self) -> None:
        self._must_join = True
        self._members: tuple[str, ...] = ()
        """The members that it has to assign to: it leads."""
        self.places: frozenset[Place] | None = None
        """None: no assignment yet."""

    @property
    def stable_generation(self) -> int | None:
        """The generation that it takes part in; None while it has no assignment."""
        return None if self.places is None else self._generation_id

    async def step(self, connection: ClientConnection) -> ErrorCode:
        if self.happens(0.02):
            self._restart()
        if self._must_join:
            code = await self._join(connection)
        elif self.places is None:
            code = await self._sync(connection)
        else:
            code = await self._take_part(connection)
        await self._react(code)
        return code

    async def _react(self, code: ErrorCode) -> None:
        match code:
            case ErrorCode.NONE | ErrorCode.MEMBER_ID_REQUIRED:
                return
            case ErrorCode.UNKNOWN_MEMBER_ID:
                self._member_id = ""
                self._rejoin()
            case ErrorCode.ILLEGAL_GENERATION | ErrorCode.REBALANCE_IN_PROGRESS:
                self._rejoin()
            case ErrorCode.FENCED_INSTANCE_ID:
                self._restart()
                await asyncio.sleep(FENCED_S)
            case ErrorCode.UNSTABLE_OFFSET_COMMIT | ErrorCode.REQUEST_TIMED_OUT:
                await self.pause()
            case _ if code not in ELSEWHERE:
                self.surprised("a request", code)
                await self.pause()

    # --- what it asks

    async def _join(self, connection: ClientConnection) -> ErrorCode:
        asked_at = self.seen.now()
        request = JoinGroup(
            group_id=self.group_id,
            member_id=self._member_id,
            group_instance_id=self._instance_id,
            client_id=self.client.name,
            client_host="/h",
            session_timeout_ms=round(SESSION_S * 1000),
            rebalance_timeout_ms=round(REBALANCE_S * 1000),
            protocol_type="consumer",
            protocols=(("range", b""),),
            uuid=f"{self.client.name}.{self._incarnation}.{asked_at:.6f}",
            requires_known_member_id=not self._is_old,
            can_skip_assignment=not self._is_old,
        )
        answer: JoinAnswer = await self.ask(connection, request, _JOIN_TIMEOUT_S)
        if answer.error_code is ErrorCode.MEMBER_ID_REQUIRED:
            self._member_id = answer.member_id
        if answer.error_code is ErrorCode.NONE:
            if self._generation_id != _NO_GENERATION:
                self._former = self._member_id, self._generation_id
            self._member_id, self._generation_id = answer.member_id, answer.generation_id
            is_leader = answer.leader == answer.member_id and not answer.skip_assignment
            self._members = tuple(one.member_id for one in answer.members if is_leader)
            self._must_join = False
            self.seen.joined.append(
                Joined(
                    self.group_id,
                    self._generation_id,
                    self._member_id,
                    asked_at,
                    self.seen.now(),
                )
            )
        return answer.error_code

    async def _sync(self, connection: ClientConnection) -> ErrorCode:
        request = SyncGroup(
            self.group_id,
            self._generation_id,
            self._member_id,
            self._instance_id,
            self._assignments(),
        )
        answer: SyncAnswer = await self.ask(connection, request, _JOIN_TIMEOUT_S)
        if answer.error_code is ErrorCode.NONE:
            author, places = json.loads(answer.assignment) if answer.assignment else ("", [])
            self.places = frozenset((topic, partition) for topic, partition in places)
            self.seen.synced.append(
                Synced(self.group_id, self._generation_id, self._member_id, author, self.places)
            )
        return answer.error_code

    def _assignments(self) -> tuple[tuple[str, bytes], ...]:
        """A part of all places for each member, and who decided on it."""
        members = sorted(self._members)
        author = f"{self.client.name}.{self._incarnation}.{self._generation_id}"
        return tuple(
            (member_id, json.dumps((author, PLACES[number :: len(members)])).encode())
            for number, member_id in enumerate(members)
        )

    async def _take_part(self, connection: ClientConnection) -> ErrorCode:
        await self.pause()
        place = self.client.rng.choice(PLACES)
        if self.happens(0.02):
            return await self._leave(connection)
        if self.happens(0.15):
            return await self.read(connection, place, None, -1)
        if self._former is not None and self.happens(0.1):
            # What another thread of it, or the process that it was, sends late is refused: no matter how.
            code = await self.commit(connection, place, *self._former, self._instance_id)
            return code if code in ELSEWHERE else ErrorCode.NONE
        if self.places and self.happens(0.5):
            place = self.client.rng.choice(sorted(self.places))
            identity = self._member_id, self._generation_id, self._instance_id
            return await self.commit(connection, place, *identity)
        request = Heartbeat(self.group_id, self._generation_id, self._member_id, self._instance_id)
        answer: HeartbeatAnswer = await self.ask(connection, request, REQUEST_TIMEOUT_S)
        return answer.error_code

    async def _leave(self, connection: ClientConnection) -> ErrorCode:
        member = LeavingMember(self._member_id, self._instance_id)
        self._restart()
        await self.ask(connection, LeaveGroup(self.group_id, (member,)), REQUEST_TIMEOUT_S)
        return ErrorCode.NONE
