"""Input and output of assignors."""

from __future__ import annotations

from collections.abc import Generator
from typing import NamedTuple

from echoless.protocol.state_records.consumer_group_values import TopicIdPartition

Target = dict[str, frozenset[TopicIdPartition]]
"""The partitions of each member, by member id."""
Steps = Generator[None, None, Target]
"""The work of an assignor in short steps, a millisecond or two at most; the target in the end."""


class Subscriber(NamedTuple):
    """A member."""

    member_id: str
    instance_id: str | None
    topics: frozenset[str]
    """Topics that the member subscribes to, whether they exist or not."""
    target: frozenset[TopicIdPartition]
    """The partitions that it was to have until now."""

    @property
    def rank(self) -> tuple[bool, str, str]:
        """The sort key of members: static ones first, by instance id, then dynamic ones."""
        return self.instance_id is None, self.instance_id or "", self.member_id


class AssignedTopic(NamedTuple):
    """A topic that a member subscribes to."""

    name: str
    topic_id: bytes
    partitions: int
