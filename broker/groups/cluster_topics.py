"""The cluster's topics, as coordinators of groups see them: by name, and by regular expression.

Expressions are RE2's, which match in time proportional to the length of a name whatever the expression
(docs/decisions/group-regexes.md).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from echoless.broker.config.internal_topics import INTERNAL_TOPICS
from echoless.broker.metadata.topic import Topic, TopicChanged, TopicEvent
from echoless.broker.network.turns import in_thread, work_in_turns
from echoless.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from echoless.coordinators.groups.consumer.requests import MayDescribe
    from echoless.coordinators.groups.consumer.topics import KnownTopic

PATTERN_LENGTH_MAX: Final = 1024
_PROGRAM_BYTES_MAX: Final = 1 << 20
"""The memory of a compiled expression."""


class ClusterTopics:
    """Belongs to the event loop."""

    def __init__(self, topics: Mapping[str, Topic]) -> None:
        """`topics` are those of the registry, by name, which change."""
        self.version = 1
        self._topics = topics

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
        self, pattern: str, may_describe: MayDescribe
    ) -> tuple[tuple[str, ...], int]:
        """The topics whose whole names a valid expression matches, and the version that was looked at.

        Internal topics are left out, and those that the client may not describe.
        """
        names, version = list(self._topics), self.version
        matched = await in_thread(lambda: _matched(pattern, names))
        found: list[str] = []

        def look(name: str) -> None:
            if may_describe is None or may_describe(name):
                found.append(name)

        await work_in_turns(map(look, matched))
        return tuple(found), version


def check_pattern(pattern: str) -> None:
    """Raises `KafkaError` INVALID_REGULAR_EXPRESSION. To be called in a thread: it imports RE2."""
    if len(pattern) > PATTERN_LENGTH_MAX:
        message = f"a regular expression has at most {PATTERN_LENGTH_MAX} characters"
        raise KafkaError(ErrorCode.INVALID_REGULAR_EXPRESSION, message)
    import re2

    try:
        _compiled(pattern)
    except re2.error as error:
        reason = error.args[0] if error.args else error
        text = reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)
        message = f"{pattern!r} is not a valid RE2 regular expression: {text}"
        raise KafkaError(ErrorCode.INVALID_REGULAR_EXPRESSION, message) from error


def _compiled(pattern: str) -> Any:
    import re2

    options = re2.Options()
    options.log_errors = False
    options.max_mem = _PROGRAM_BYTES_MAX
    return re2.compile(pattern, options)


def _matched(pattern: str, names: list[str]) -> list[str]:
    matches = _compiled(pattern).fullmatch
    return sorted(name for name in names if name not in INTERNAL_TOPICS and matches(name))
