"""The consumer whose offsets a transaction commits."""

from __future__ import annotations

from typing import NamedTuple


class GroupMetadata(NamedTuple):
    """A consumer group, and the member and generation for which offsets are committed.

    With generation and member, a member that has lost its partitions is refused (KIP-447); without, it is not.
    """

    group_id: str
    generation: int = -1
    member_id: str = ""
    instance_id: str | None = None
    """Kafka's `group.instance.id`."""
