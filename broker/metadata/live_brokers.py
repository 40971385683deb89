"""The registered brokers, kept up to date by watches.

While the coordinator cannot be reached, the view stays as it was last known.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import NamedTuple

from echoless.broker.metadata.node_data import BROKERS, NodeDataError
from echoless.broker.metadata.registration import BrokerInfo, decode_broker
from echoless.broker.tree.node_tree import Cancel, Node, NodeTree, ensure_paths
from echoless.broker.tree.refresher import Refresher

logger = logging.getLogger(__name__)


class LiveBroker(NamedTuple):
    """A broker as registered, and the session that is its broker epoch."""

    info: BrokerInfo
    session_id: int


class LiveBrokers:
    """The registered brokers. Used from one event loop, from `start` to `close`."""

    def __init__(self, tree: NodeTree) -> None:
        self.brokers: dict[int, LiveBroker] = {}
        """By id, ascending; replaced as a whole at each change."""
        self._tree = tree
        self._listeners: dict[object, Callable[[], None]] = {}
        self._cancels: dict[str, Cancel] = {}
        """Cancels of the watches, by path."""
        self._turn = asyncio.Lock()
        """Held from the first read to the publication, so that the view never moves back."""
        self._refresher = Refresher("live brokers", self.refresh)

    async def start(self) -> None:
        """Reads who is there and watches from now on. Raises `ConnectionLostError`."""
        await ensure_paths(self._tree, [BROKERS])
        self._cancels[BROKERS] = await self._tree.watch_children(BROKERS, self._on_change)
        await self.refresh()
        self._refresher.start()

    def listen(self, callback: Callable[[], None]) -> Cancel:
        """Calls back after each change of `brokers`; it must not block or raise."""
        key = object()
        self._listeners[key] = callback

        def cancel() -> None:
            self._listeners.pop(key, None)

        return cancel

    async def refresh(self) -> None:
        """Brings the view up to date now. Raises `ConnectionLostError`."""
        async with self._turn:
            paths = [f"{BROKERS}/{name}" for name in await self._tree.children(BROKERS)]
            await self._watch(paths)
            nodes = await self._tree.read_many(paths)
            found = [
                broker
                for path, node in zip(paths, nodes, strict=True)
                if node is not None and (broker := _decode(path, node)) is not None
            ]
            self._publish({broker.info.broker_id: broker for broker in found})

    async def close(self) -> None:
        """Stops watching."""
        await self._refresher.close()
        for cancel in self._cancels.values():
            cancel()
        self._cancels.clear()

    async def _watch(self, paths: list[str]) -> None:
        """Watches these brokers' nodes, and no longer those of brokers that are gone."""
        for path in paths:
            if path not in self._cancels:
                self._cancels[path] = await self._tree.watch(path, self._on_change)
        for path in [path for path in self._cancels if path not in {BROKERS, *paths}]:
            self._cancels.pop(path)()

    def _on_change(self, _path: str) -> None:
        self._refresher.ask()

    def _publish(self, brokers: dict[int, LiveBroker]) -> None:
        after = dict(sorted(brokers.items()))
        if after == self.brokers:
            return
        self.brokers = after
        for listener in list(self._listeners.values()):
            listener()


def _decode(path: str, node: Node) -> LiveBroker | None:
    """Decodes the node; None if it cannot be read: no one could reach that broker."""
    try:
        return LiveBroker(decode_broker(path, node), node.owner)
    except NodeDataError as error:
        logger.warning("taken for no broker: %s", error)
        return None
