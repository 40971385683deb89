"""The cluster's topics, as coordinators of groups see them: by name, and by regular expression.

`topic_patterns.py` matches the expressions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from echoless.broker.config.internal_topics import INTERNAL_TOPICS
from echoless.broker.groups.topic_patterns import matching_names
from echoless.broker.metadata.topic import Topic, TopicChanged, TopicEvent
from echoless.broker.network.turns import work_in_turns

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from echoless.coordinators.groups.consumer.requests import MayDescribe
    from echoless.coordinators.groups.consumer.topics import KnownTopic


class ClusterTopics:
    """Belongs to the event loop."""

    def __init__(self, topics: Mapping[str, Topic]) -> None:
        """`topics` are those of the registry, by name, which change."""
        self.version = 1
        self._topics = topics
        self._names: list[str] = []
        self._names_version = 0
        """The version of which these are the names."""

    def on_topic_event(self, event: TopicEvent) -> None:
        """Counts the changes on which assignments depend."""
        if (
            not isinstance(event, TopicChanged)
            or event.before.partition_count != event.after.partition_count
        ):
            self.version += 1

    def find(self, name: str) -> KnownTopic | None:
        """The topic; None if there is none of that name."""
        from echoless.coordinators.groups.consumer.topics import KnownTopic

        topic = self._topics.get(name)
        if topic is None:
            return None
        return KnownTopic(topic.topic_id.bytes, topic.partition_count)

    def names_of(self, topic_ids: Collection[bytes]) -> dict[bytes, str]:
        """The names of these topics, by id; those that were deleted have none."""
        known = ((topic.topic_id.bytes, name) for name, topic in self._topics.items())
        return {topic_id: name for topic_id, name in known if topic_id in topic_ids}

    async def matching(
        self, pattern: str, address: str, may_describe: MayDescribe
    ) -> tuple[tuple[str, ...], int]:
        """The topics whose whole names a valid expression matches, and the version that was looked at.

        Internal topics are left out, and those that the client may not describe. The work is done in the turns of `address`.
        """
        names, version = self._sorted_names(), self.version
        matched = await matching_names(pattern, names, address)
        found: list[str] = []

        def look(name: str) -> None:
            if may_describe is None or may_describe(name):
                found.append(name)

        await work_in_turns(map(look, matched))
        return tuple(found), version

    def _sorted_names(self) -> list[str]:
        """The names of the topics, one list for all who look at this version; internal ones are left out."""
        if self._names_version != self.version:
            self._names = sorted(name for name in self._topics if name not in INTERNAL_TOPICS)
            self._names_version = self.version
        return self._names
