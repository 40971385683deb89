"""One of the two brokers, as a game asks it: connections, and the ids of its topics."""

from __future__ import annotations

import uuid
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from tests.support.raw_client import RawConnection

Connect = Callable[[], Awaitable[RawConnection]]
"""Opens a connection to one of the brokers, logged in if it asks for that."""


class Side:
    """Lends connections; one that was not given back is its borrower's to close."""

    def __init__(self, connect: Connect, *, is_kafka: bool) -> None:
        self.connect = connect
        self.is_kafka = is_kafka
        self.topic_ids: dict[str, uuid.UUID] = {}
        self._idle: list[RawConnection] = []

    async def borrow(self) -> RawConnection:
        return self._idle.pop() if self._idle else await self.connect()

    def give_back(self, connection: RawConnection) -> None:
        """Takes back a connection that owes no answer."""
        self._idle.append(connection)

    async def close(self) -> None:
        for connection in self._idle:
            await connection.close()
        self._idle.clear()


class Sides(NamedTuple):
    """Both brokers."""

    kafka: Side
    echoless: Side


async def wait_for_coordinator(side: Side) -> None:
    """Returns when groups have a coordinator, and it answers."""
    connection = await side.borrow()
    code = -1
    while code:
        found = await connection.call("find_coordinator", 4, key_type=0, coordinator_keys=("g",))
        code = found.coordinators[0].error_code
    code = -1
    while code:
        found = await connection.call(
            "describe_groups", 5, groups=("g",), include_authorized_operations=False
        )
        code = found.groups[0].error_code
    side.give_back(connection)
