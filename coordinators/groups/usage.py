"""The bounded things that coordinators hold, and how much memory the parts of a stored group take."""

from __future__ import annotations

from typing import NamedTuple

from echoless.coordinators.groups.consumer.state import consumer_value_size
from echoless.protocol.state_records.classic_group_value import GroupValue
from echoless.protocol.state_records.consumer_group_values import ConsumerValue
from echoless.protocol.state_records.offset_value import OffsetValue


class Usage(NamedTuple):
    """The amount held of what `GroupCoordinatorConfig` bounds."""

    groups: int = 0
    members: int = 0
    """Ids handed out included."""
    size: int = 0
    """Bytes of protocols, assignments and the metadata of offsets, those that are being stored included."""


def total(usages: list[Usage]) -> Usage:
    """Adds up what several coordinators hold."""
    return Usage(*map(sum, zip(Usage(), *usages, strict=True)))


def value_size(value: GroupValue | OffsetValue | ConsumerValue | None) -> int:
    """The memory that the assignments of a group, or the metadata of an offset, take at most.

    The subscriptions of a group are counted with its members.
    """
    if isinstance(value, OffsetValue):
        return metadata_size(value.metadata)
    if isinstance(value, GroupValue):
        return sum([len(member.assignment) for member in value.members])
    return consumer_value_size(value)


def metadata_size(metadata: str) -> int:
    """The memory that the metadata of an offset takes at most."""
    return len(metadata) if metadata.isascii() else 4 * len(metadata)
