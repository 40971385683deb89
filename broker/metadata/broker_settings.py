"""The settings of running brokers in the tree, where Kafka 3.9 keeps them: `/config/brokers/<id>`, `/config/brokers/<default>`.

Read at the start, after each announced change and once a minute: an announcement may be lost. While the coordinator
cannot be reached, what was read last stays in force. `broker/config/dynamic.py` says which settings there are.

Invariant: a change that was made here is in force here before its client learns of its success.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Final

from echoless.broker.config.dynamic import DynamicConfig
from echoless.broker.metadata.config_nodes import (
    CHANGES,
    DEFAULT_NAME,
    change_config,
    decode_config,
)
from echoless.broker.tree.node_tree import CoordinationError
from echoless.broker.tree.refresher import Refresher
from echoless.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from echoless.broker.config.names import Config
    from echoless.broker.tree.node_tree import Cancel, NodeTree

BROKERS: Final = "/config/brokers"
OF_ALL: Final = f"{BROKERS}/{DEFAULT_NAME}"
READ_INTERVAL_S: Final = 60.0
"""The longest time for which a lost announcement can go unnoticed."""

Listener = Callable[[frozenset[str]], Awaitable[None]]
Edit = Callable[[Mapping[str, str]], dict[str, str]]


class BrokerSettings:
    """The settings of one broker as they change. Used from one event loop, from `start` to `close`."""

    def __init__(self, config: Config) -> None:
        self.dynamic = DynamicConfig(config)
        self._own_path = f"{BROKERS}/{config.broker_id}"
        self._seen: tuple[dict[str, str], dict[str, str]] = {}, {}
        """The nodes as they were read last: for all brokers, and for this one."""
        self._unannounced: frozenset[str] = frozenset()
        """Names whose new values not all listeners have taken."""
        self._listeners: list[Listener] = []
        self._reading = asyncio.Lock()
        self._refresher: Refresher | None = None
        self._cancel: Cancel | None = None

    async def start(self, tree: NodeTree, *, is_shared: bool) -> None:
        """Reads what is stored; follows it if others can change the tree. Raises `CoordinationError`."""
        self._tree = tree
        if is_shared:
            self._refresher = Refresher(
                "settings of brokers", self.refresh, every_s=READ_INTERVAL_S
            )
            self._cancel = await tree.watch_children(CHANGES, lambda _: self._ask())
            self._refresher.start()
        await self.refresh()

    async def close(self) -> None:
        """Stops following."""
        if self._cancel is not None:
            self._cancel()
        if self._refresher is not None:
            await self._refresher.close()

    def listen(self, listener: Listener) -> None:
        """Calls the listener with the names in `Config` whose values have changed, from now on."""
        self._listeners.append(listener)

    async def refresh(self) -> None:
        """Brings what is stored into force now. Raises `CoordinationError`."""
        async with self._reading:  # else a round that has read before it could end after this one
            seen = await self._read()
            if seen != self._seen:
                self._seen = seen
                self._unannounced |= self.dynamic.apply(*seen)
            if self._unannounced:
                for listener in self._listeners:
                    await listener(self._unannounced)
                self._unannounced = frozenset()

    async def alter(self, *, of_all: bool, edit: Edit, validate_only: bool) -> None:
        """Lets `edit` make another map of the settings of all brokers, or of this one, and puts it into force.

        Raises `KafkaError`: what `edit` raises, INVALID_REQUEST if the new values contradict each other.
        """

        def change(stored: dict[str, str]) -> None:
            after = edit(stored)
            others_of_all, others_own = self._seen
            self.dynamic.check(after if of_all else others_of_all, others_own if of_all else after)
            stored.clear()
            stored |= after

        path = OF_ALL if of_all else self._own_path
        try:
            if validate_only:
                change(await self._map_at(path))
                return
            await change_config(self._tree, path, change)
            await self.refresh()
        except CoordinationError as error:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, str(error)) from error

    async def _read(self) -> tuple[dict[str, str], dict[str, str]]:
        of_all, own = await self._tree.read_many([OF_ALL, self._own_path])
        return (
            {} if of_all is None else decode_config(OF_ALL, of_all.data),
            {} if own is None else decode_config(self._own_path, own.data),
        )

    async def _map_at(self, path: str) -> dict[str, str]:
        node = (await self._tree.read_many([path]))[0]
        return {} if node is None else decode_config(path, node.data)

    def _ask(self) -> None:
        if self._refresher is not None:
            self._refresher.ask()
