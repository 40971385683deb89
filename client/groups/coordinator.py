"""The broker that coordinates a group: found, asked, and looked for again when it has moved.

A request that gets no answer in time ends the connection, so that the answer cannot be taken for another one's.
Whether it was processed is unknown then: callers send only what may be repeated.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping
from typing import Any, Final

from echoless.client.cluster import BrokerAddress, Cluster, NoLeaderError
from echoless.client.connection_errors import AuthenticationError, ConnectionFailedError
from echoless.client.groups.errors import GroupError, group_error
from echoless.protocol.errors import ErrorCode

_GROUP_KEY: Final = 0
_RETRY_S: Final = 0.1
_RETRY_MAX_S: Final = 2.0

MOVED: Final = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    }
)
"""Codes of any group request after which the coordinator is looked for again."""


class Backoff:
    """Pauses between attempts, doubled each time, with jitter."""

    def __init__(self, first_s: float = _RETRY_S, most_s: float = _RETRY_MAX_S) -> None:
        self._next_s = first_s
        self._most_s = most_s

    async def pause(self) -> None:
        await asyncio.sleep(self._next_s * random.uniform(0.8, 1.2))  # noqa: S311  jitter
        self._next_s = min(2 * self._next_s, self._most_s)


class Coordinator:
    """The coordinator of one group."""

    def __init__(self, cluster: Cluster, group: str, *, timeout_s: float) -> None:
        """`timeout_s` limits an answer that need not wait for other members."""
        self.group = group
        self._cluster = cluster
        self._timeout_s = timeout_s
        self._address: BrokerAddress | None = None

    async def ask(
        self, api: str, fields: Mapping[str, Any], *, timeout_s: float | None = None
    ) -> Any:
        """One request, kio's entity back; None if there was no answer. Raises `GroupError`."""
        try:
            connection = await self._cluster.connection(await self._found())
            try:
                async with asyncio.timeout(timeout_s or self._timeout_s):
                    return await connection.send(api, fields)
            except TimeoutError:
                await connection.close()
        except AuthenticationError as error:
            raise GroupError(
                f"group {self.group}: {error}", ErrorCode.SASL_AUTHENTICATION_FAILED
            ) from error
        except ConnectionFailedError:
            pass
        self.forget()
        return None

    def forget(self) -> None:
        """Has the coordinator looked for before the next request."""
        self._address = None

    async def _found(self) -> BrokerAddress:
        backoff = Backoff()
        while self._address is None:
            self._address = await self._look()
            if self._address is None:
                await backoff.pause()
        return self._address

    async def _look(self) -> BrokerAddress | None:
        """Asks where the coordinator is; None if no broker knows now. Raises `GroupError`."""
        # Before version 4 a request has one key, from then on a list.
        fields = {"key": self.group, "key_type": _GROUP_KEY, "coordinator_keys": [self.group]}
        try:
            answer = await self._cluster.ask_any("find_coordinator", fields)
        except NoLeaderError as error:
            if error.final_code:
                raise GroupError(f"group {self.group}: {error}", error.final_code) from error
            return None
        found = answer.coordinators[0] if hasattr(answer, "coordinators") else answer
        if found.error_code.value in MOVED:
            return None
        if found.error_code.value:
            raise group_error(self.group, "its coordinator", found.error_code)
        return BrokerAddress(found.host, found.port)
