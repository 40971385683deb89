"""One broker's side of a history: its connections, its member ids, and the answers that it owes."""

from __future__ import annotations

import asyncio
from typing import Final

from tests.oracle.groups.step import Request
from tests.oracle.messages import Plain, plain, request_of
from tests.oracle.side import Side
from tests.support.raw_client import ConnectionEndedError, RawConnection

NOBODY: Final = "nobody"
"""A member id that no broker has given."""


class GroupAsker:
    """Asks each request on a connection that owes no answer: one that waits has its connection to itself."""

    def __init__(self, side: Side) -> None:
        self.responses: dict[int, Plain] = {}
        """By number of the step."""
        self._side = side
        self._ids: dict[str, str] = {"": "", NOBODY: NOBODY}
        self._names: dict[str, str] = {"": "", NOBODY: NOBODY}
        self._idle: list[RawConnection] = []
        self._waiting: dict[int, asyncio.Task[None]] = {}

    def ask(self, step: Request) -> None:
        """Sends the request; the answer comes to `answers` sooner or later."""
        self._waiting[step.number] = asyncio.create_task(self._ask(step))

    async def _ask(self, step: Request) -> None:
        try:
            connection = self._idle.pop() if self._idle else await self._open()
            connection.send_request(request_of(step.api, step.version, self._resolved(step.values)))
            response = await connection.receive_response(step.api, step.version)
        except (ConnectionEndedError, TimeoutError, OSError) as error:
            self.responses[step.number] = {"no answer": type(error).__name__}
            return
        self._learn(response, step)
        self.responses[step.number] = response
        self._idle.append(connection)

    async def open(self, count: int) -> None:
        """Open connections before they are needed: a request on a new one may come after a later one."""
        self._idle += [await self._open() for _ in range(count)]

    async def _open(self) -> RawConnection:
        connection = await self._side.connect()
        await connection.call("api_versions", 0)
        return connection

    def _resolved(self, values: Plain) -> Plain:
        """The values with this broker's ids instead of names; a name that it has given no id stays."""
        if isinstance(values, dict):
            return {
                key: self._ids.get(value, value) if key == "member_id" else self._resolved(value)
                for key, value in values.items()
            }
        if isinstance(values, list):
            return [self._resolved(one) for one in values]
        return values

    def _learn(self, response: Plain, step: Request) -> None:
        """Name the id in the answer to a join after the step that it answers."""
        member_id = getattr(response, "member_id", "")
        if step.api == "join_group" and member_id not in self._names:
            name = f"{step.client}.{step.number}"
            self._ids[name], self._names[member_id] = member_id, name

    def _name_of(self, member_id: str) -> str:
        if member_id is None:
            return ""
        return self._names.get(member_id, f"an id of another: {len(member_id)} characters")

    async def close(self) -> None:
        """Ends every connection, those that wait for an answer too."""
        for task in self._waiting.values():
            task.cancel()
        await asyncio.gather(*self._waiting.values(), return_exceptions=True)
        for connection in self._idle:
            await connection.close()

    async def answered(self, step: Request) -> Plain:
        """Wait for the answer to a step that waits for no other."""
        await self._waiting[step.number]
        return self.answer(step.number)

    def answer(self, number: int) -> Plain:
        """Return an answer with names instead of ids: of all members whose own answers have arrived by now."""
        return plain(self.responses[number], self._name_of)

    def inherit(self, earlier: GroupAsker) -> None:
        """Take over the ids that the broker gave before its restart."""
        self._ids, self._names = earlier._ids, earlier._names
