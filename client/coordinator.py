"""The broker that coordinates a group or a transactional id: found, asked, and looked for again when it has moved.

A request that gets no answer in time ends the connection, so that the answer cannot be taken for another one's.
Whether it was processed is unknown then: callers send only what may be repeated.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from echoless.client.cluster import BrokerAddress, Cluster, NoLeaderError
from echoless.client.connection_errors import AuthenticationError, ConnectionFailedError
from echoless.client.errors import ProducerError
from echoless.client.groups.errors import GroupError
from echoless.client.transactions.errors import TransactionError
from echoless.protocol.errors import ErrorCode

_RETRY_S: Final = 0.1
_RETRY_MAX_S: Final = 2.0

MOVED: Final = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    }
)
"""Codes of any request after which the coordinator is looked for again."""


class Coordinated(NamedTuple):
    """The kind of thing that has a coordinator."""

    key_type: int
    """Its number in FindCoordinator."""
    noun: str
    error: Callable[[str, int], ProducerError]
    """Makes the error for a message and a broker's code."""


GROUP: Final = Coordinated(0, "group", GroupError)
TRANSACTIONAL_ID: Final = Coordinated(1, "transactional id", TransactionError)


class Backoff:
    """Pauses between attempts, doubled each time, with jitter."""

    def __init__(self, first_s: float = _RETRY_S, most_s: float = _RETRY_MAX_S) -> None:
        self._next_s = first_s
        self._most_s = most_s

    async def pause(self) -> None:
        await asyncio.sleep(self._next_s * random.uniform(0.8, 1.2))  # noqa: S311  jitter
        self._next_s = min(2 * self._next_s, self._most_s)


class Coordinator:
    """The coordinator of one group, or of one transactional id."""

    def __init__(
        self, cluster: Cluster, key: str, *, timeout_s: float, kind: Coordinated = GROUP
    ) -> None:
        """`key` is the group or the id; `timeout_s` limits an answer that need not wait for other clients."""
        self.key = key
        self._cluster = cluster
        self._timeout_s = timeout_s
        self._kind = kind
        self._address: BrokerAddress | None = None

    async def ask(
        self,
        api: str,
        fields: Mapping[str, Any],
        *,
        timeout_s: float | None = None,
        version_max: int | None = None,
    ) -> Any:
        """One request, kio's entity back; None if there was no answer. Raises the error of its kind."""
        try:
            connection = await self._cluster.connection(await self._found())
            try:
                async with asyncio.timeout(timeout_s or self._timeout_s):
                    return await connection.send(api, fields, version_max)
            except TimeoutError:
                await connection.close()
        except AuthenticationError as error:
            raise self._error(str(error), ErrorCode.SASL_AUTHENTICATION_FAILED) from error
        except ConnectionFailedError:
            pass
        self.forget()
        return None

    def forget(self) -> None:
        """Has the coordinator looked for before the next request."""
        self._address = None

    def finalized_level(self, feature: str) -> int | None:
        """The cluster's level of a feature, 0 if it has none; None while there is no connection to the coordinator."""
        connection = self._cluster.open_connection(self._address) if self._address else None
        return None if connection is None else connection.finalized.get(feature, 0)

    async def _found(self) -> BrokerAddress:
        backoff = Backoff()
        while self._address is None:
            self._address = await self._look()
            if self._address is None:
                await backoff.pause()
        return self._address

    async def _look(self) -> BrokerAddress | None:
        """Asks where the coordinator is; None if no broker knows now. Raises the error of its kind."""
        # Before version 4 a request has one key, from then on a list.
        fields = {"key": self.key, "key_type": self._kind.key_type, "coordinator_keys": [self.key]}
        try:
            answer = await self._cluster.ask_any("find_coordinator", fields)
        except NoLeaderError as error:
            if error.final_code:
                raise self._error(str(error), error.final_code) from error
            return None
        found = answer.coordinators[0] if hasattr(answer, "coordinators") else answer
        code = found.error_code
        if code.value in MOVED:
            return None
        if code.value:
            raise self._error(f"its coordinator: {code.name.upper()}", code.value)
        return BrokerAddress(found.host, found.port)

    def _error(self, reason: str, code: int) -> ProducerError:
        return self._kind.error(f"{self._kind.noun} {self.key}: {reason}", code)
