"""The bounded things that coordinators hold, and how much memory the parts of a stored group take."""

from __future__ import annotations

from functools import reduce
from typing import Final, NamedTuple

from echoless.coordinators.groups.consumer.state import consumer_value_size
from echoless.protocol.state_records.classic_group_value import GroupValue
from echoless.protocol.state_records.consumer_group_values import ConsumerValue
from echoless.protocol.state_records.offset_value import OffsetValue


class Usage(NamedTuple):
    """The amount held of what `GroupCoordinatorConfig` bounds."""

    groups: int = 0
    members: int = 0
    ids: int = 0
    """Ids that were handed out, and not joined with yet."""
    size: int = 0
    """Bytes of protocols and assignments, those that are being stored included."""
    metadata: int = 0
    """Bytes of the metadata of offsets."""
    offsets: int = 0
    """Committed offsets, those that are being stored included."""


NOTHING: Final = Usage()


def total(usages: list[Usage]) -> Usage:
    """Adds up what several coordinators hold."""
    return reduce(plus, usages, NOTHING)


def plus(one: Usage, other: Usage) -> Usage:
    """Add up two. Written out, because each commit needs it several times."""
    groups, members, ids, size, metadata, offsets = one
    return Usage(
        groups + other[0],
        members + other[1],
        ids + other[2],
        size + other[3],
        metadata + other[4],
        offsets + other[5],
    )


def negative(usage: Usage) -> Usage:
    """The change by which something is held no longer."""
    return Usage(*[-one for one in usage])


def value_size(value: GroupValue | OffsetValue | ConsumerValue | None) -> int:
    """The memory that the assignments of a group take at most.

    The subscriptions of a group are counted with its members, and the metadata of an offset by itself.
    """
    if value is None or isinstance(value, OffsetValue):
        return 0
    if isinstance(value, GroupValue):
        return sum([len(member.assignment) for member in value.members])
    return consumer_value_size(value)


def offset_size(value: OffsetValue | None) -> int:
    """The memory that the metadata of an offset takes at most."""
    return metadata_size(value.metadata) if value is not None and value.metadata else 0


def metadata_size(metadata: str) -> int:
    """The memory that the metadata of an offset takes at most."""
    return len(metadata) if metadata.isascii() else 4 * len(metadata)
