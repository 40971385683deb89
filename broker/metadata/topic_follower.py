"""Follows the topics of the tree: what others change is read soon after.

Watched are the set of topics, and of each topic its node, its configuration and each partition's state.
A call marks what it is about as dirty, and one task reads that again: a topic as a whole, its assignment, or the
states of single partitions. A topic of thousands of partitions changes as often as any of them, so a change must cost
what changed. As watches call after a reconnection, everything is dirty then.

Knows nothing of how topics are read; called by `topic_registry.py`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence

from echoless.broker.metadata.node_data import (
    TOPICS,
    NodeDataError,
    partition_state_path,
    topic_config_path,
    topic_path,
)
from echoless.broker.metadata.topic import TopicCreated, TopicEvent
from echoless.broker.metadata.topic_view import TopicView
from echoless.broker.tree.node_tree import Cancel, NodeTree
from echoless.broker.tree.refresher import Refresher

logger = logging.getLogger(__name__)

Refresh = Callable[[Sequence[str]], Awaitable[None]]
RefreshParts = Callable[[Mapping[str, Collection[int]], Collection[str]], Awaitable[set[str]]]


class TopicFollower:
    """From `start` to `close`, `refresh` is called with the names of topics that may have changed.

    `refresh_parts` is called with partitions whose states may have changed, and topics whose assignment may have; it
    returns the topics for which that is not enough.

    Invariant: a topic that is not dirty has watches on all its nodes that were set before it was read.
    """

    def __init__(
        self, tree: NodeTree, view: TopicView, refresh: Refresh, refresh_parts: RefreshParts
    ) -> None:
        self._tree = tree
        self._view = view
        self._topics = view.topics
        self._refresh = refresh
        self._refresh_parts = refresh_parts
        self._cancels: dict[str, dict[str, Cancel]] = {}
        """Cancels of the watches, by topic and path."""
        self._cancel_others: list[Cancel] = []
        self._names_are_dirty = True
        self._dirty: dict[str, None] = {}
        """Topics to read as a whole, in the order of their changes."""
        self._dirty_states: dict[str, set[int]] = {}
        """Partitions whose states are to be read, by topic."""
        self._dirty_nodes: set[str] = set()
        """Topics whose assignments are to be read."""
        self._refresher = Refresher("topics", self._round)

    async def start(self) -> None:
        """Returns when all topics are watched and read. Raises `CoordinationError`."""
        self._cancel_others = [
            self._view.listen(self._on_event),
            await self._tree.watch_children(TOPICS, self._on_names),
        ]
        self._dirty.update(dict.fromkeys(self._topics))
        while self._names_are_dirty or self._dirty or self._dirty_states or self._dirty_nodes:
            await self._round()
        self._refresher.start()

    async def close(self) -> None:
        """Stops watching."""
        await self._refresher.close()
        for cancel in self._cancel_others:
            cancel()
        for name in list(self._cancels):
            self._forget(name)

    def _on_names(self, _path: str) -> None:
        self._names_are_dirty = True
        self._refresher.ask()

    def _on_event(self, event: TopicEvent) -> None:
        """Marks a topic made here, or read because of a lost race: it is not watched yet."""
        if isinstance(event, TopicCreated) and event.topic.name not in self._cancels:
            self._mark(event.topic.name)

    def _mark(self, name: str) -> None:
        self._dirty[name] = None
        self._refresher.ask()

    def _mark_state(self, name: str, partition: int) -> None:
        self._dirty_states.setdefault(name, set()).add(partition)
        self._refresher.ask()

    def _mark_node(self, name: str) -> None:
        self._dirty_nodes.add(name)
        self._refresher.ask()

    async def _round(self) -> None:
        """Reads what is dirty; what could not be read stays dirty."""
        if self._names_are_dirty:
            await self._read_names()
        dirty, self._dirty = self._dirty, {}
        states, self._dirty_states = self._dirty_states, {}
        nodes, self._dirty_nodes = self._dirty_nodes, set()
        try:
            partly = {name: some for name, some in states.items() if name not in dirty}
            reassigned = nodes.difference(dirty)
            if partly or reassigned:
                left = await self._refresh_parts(partly, reassigned)
                dirty |= dict.fromkeys(sorted(left))
            if dirty:
                await self._bring_up_to_date(list(dirty))
        except BaseException:
            self._dirty = dirty | self._dirty
            self._dirty_nodes |= nodes
            for name, some in states.items():
                self._dirty_states.setdefault(name, set()).update(some)
            raise

    async def _read_names(self) -> None:
        """Topics that came or went are dirty; of one that did both its watches tell."""
        self._names_are_dirty = False
        try:
            names = await self._tree.children(TOPICS)
        except BaseException:
            self._names_are_dirty = True
            raise
        self._dirty.update(dict.fromkeys(name for name in names if name not in self._cancels))
        gone = self._cancels.keys() - names
        self._dirty.update(dict.fromkeys(sorted(gone)))

    async def _bring_up_to_date(self, names: Sequence[str]) -> None:
        await self._watch(names)
        unreadable = await self._read(names)
        for name in names:
            if name not in self._topics and name not in unreadable:
                self._forget(name)
            elif any(path not in self._cancels[name] for path in self._paths(name)):
                self._mark(name)

    async def _read(self, names: Sequence[str]) -> set[str]:
        """Reads the named topics; returns those that cannot be read, which keep what was known of them."""
        try:
            await self._refresh(names)
        except NodeDataError as error:
            if len(names) == 1:
                logger.warning("a topic cannot be read: %s", error)
                return set(names)
            unreadable: set[str] = set()
            for name in names:
                unreadable |= await self._read([name])
            return unreadable
        return set()

    async def _watch(self, names: Sequence[str]) -> None:
        """Sets the watches that are missing, all at once."""
        missing = [
            self._watch_node(name, path, partition)
            for name in names
            for path, partition in self._paths(name).items()
            if path not in self._cancels.setdefault(name, {})
        ]
        results = await asyncio.gather(*missing, return_exceptions=True)
        for result in results:
            if result is not None:
                raise result

    async def _watch_node(self, name: str, path: str, partition: int | None) -> None:
        def changed(_path: str) -> None:
            if partition is not None:
                self._mark_state(name, partition)
            elif path == topic_path(name):
                self._mark_node(name)
            else:
                self._mark(name)

        self._cancels[name][path] = await self._tree.watch(path, changed)

    def _paths(self, name: str) -> dict[str, int | None]:
        """All nodes that the topic is made of, as far as it is known; a state with its partition."""
        topic = self._topics.get(name)
        paths: dict[str, int | None] = {topic_path(name): None, topic_config_path(name): None}
        for partition in () if topic is None else topic.assignment:
            paths[partition_state_path(name, partition)] = partition
        return paths

    def _forget(self, name: str) -> None:
        for cancel in self._cancels.pop(name, {}).values():
            cancel()
