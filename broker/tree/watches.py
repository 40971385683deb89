"""The callbacks that watch nodes and the session.

Callbacks are queued on the event loop, never called in the middle of another step, and no longer
called once cancelled. Knows nothing of where the nodes are kept.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Generic, TypeVar

from echoless.broker.tree.node_tree import (
    Cancel,
    SessionCallback,
    SessionState,
    WatchCallback,
    parent_of,
)

T = TypeVar("T")


class Watches:
    """The watches of one client."""

    def __init__(self) -> None:
        self._of_nodes: dict[str, Listeners[str]] = {}
        self._of_children: dict[str, Listeners[str]] = {}
        self._of_session: Listeners[SessionState] = Listeners()

    def watch(self, path: str, callback: WatchCallback) -> Cancel:
        """Registers for the node's data and existence."""
        return self._of_nodes.setdefault(path, Listeners()).add(callback)

    def watch_children(self, path: str, callback: WatchCallback) -> Cancel:
        """Registers for the set of children and the node's existence."""
        return self._of_children.setdefault(path, Listeners()).add(callback)

    def on_session(self, callback: SessionCallback) -> Cancel:
        """Registers for session events."""
        return self._of_session.add(callback)

    def node_changed(self, path: str, *, came_or_went: bool) -> None:
        """Notifies the watches that a change of this node concerns."""
        _notify(self._of_nodes, path)
        if came_or_went:
            _notify(self._of_children, path)
            _notify(self._of_children, parent_of(path))

    def anything_may_have_changed(self) -> None:
        """Notifies every watch: after a reconnection, changes may have been missed."""
        for watched in (self._of_nodes, self._of_children):
            for path in list(watched):
                _notify(watched, path)

    def session_changed(self, state: SessionState) -> None:
        """Notifies the callbacks registered for session events."""
        self._of_session.notify(state)


def _notify(watched: dict[str, Listeners[str]], path: str) -> None:
    listeners = watched.get(path)
    if listeners is None:
        return
    if listeners:
        listeners.notify(path)
    else:
        del watched[path]


class Listeners(Generic[T]):
    """The callbacks for one node, for its children or for the session."""

    def __init__(self) -> None:
        self._callbacks: dict[object, Callable[[T], None]] = {}

    def __len__(self) -> int:
        return len(self._callbacks)

    def add(self, callback: Callable[[T], None]) -> Cancel:
        key = object()
        self._callbacks[key] = callback

        def cancel() -> None:
            self._callbacks.pop(key, None)

        return cancel

    def notify(self, event: T) -> None:
        loop = asyncio.get_running_loop()
        for key in self._callbacks:
            loop.call_soon(self._call, key, event)

    def _call(self, key: object, event: T) -> None:
        callback = self._callbacks.get(key)
        if callback is not None:
            callback(event)
