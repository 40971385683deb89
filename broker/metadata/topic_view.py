"""The topics in memory, and the listeners of their changes. Knows nothing of the node tree."""

from __future__ import annotations

import uuid
from collections.abc import Callable

from echoless.broker.metadata.topic import (
    Topic,
    TopicChanged,
    TopicCreated,
    TopicDeleted,
    TopicEvent,
)
from echoless.broker.tree.node_tree import Cancel

TopicListener = Callable[[TopicEvent], None]


class TopicView:
    """The newest known version of every topic.

    Invariant: both dictionaries hold the same topics.
    """

    def __init__(self) -> None:
        self.topics: dict[str, Topic] = {}
        """By name."""
        self.topics_by_id: dict[uuid.UUID, Topic] = {}
        self._listeners: dict[object, TopicListener] = {}

    def listen(self, listener: TopicListener) -> Cancel:
        """Calls `listener` at every event from now on, inside `publish`; it must not raise."""
        key = object()
        self._listeners[key] = listener

        def cancel() -> None:
            self._listeners.pop(key, None)

        return cancel

    def publish(self, name: str, after: Topic | None) -> None:
        """Replaces the topic (None: it is gone) and notifies the listeners, unless nothing changed.

        A topic that was deleted and created again is two events.
        """
        before = self.topics.get(name)
        if before == after:
            return
        if before is not None and (after is None or after.topic_id != before.topic_id):
            del self.topics[name], self.topics_by_id[before.topic_id]
            self._tell(TopicDeleted(before))
            before = None
        if after is not None:
            self.topics[name] = self.topics_by_id[after.topic_id] = after
            self._tell(TopicCreated(after) if before is None else TopicChanged(before, after))

    def _tell(self, event: TopicEvent) -> None:
        for listener in list(self._listeners.values()):
            listener(event)
