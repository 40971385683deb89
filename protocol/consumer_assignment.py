"""The assignments that members of a group of the type "consumer" get. Pure."""

from __future__ import annotations

import struct
from collections.abc import Iterator

Partition = tuple[str, int]


def assigned_partitions(assignment: bytes) -> Iterator[Partition]:
    """The partitions in an assignment of the type "consumer"; none if it is of another type.

    Format: version i16, an array of topics (string, array of i32), user data; big-endian.
    """
    try:
        (count,) = struct.unpack_from(">2xi", assignment)
        position = 6
        found = []
        for _ in range(count):
            (length,) = struct.unpack_from(">h", assignment, position)
            topic = assignment[position + 2 : position + 2 + length].decode()
            (partitions,) = struct.unpack_from(">i", assignment, position + 2 + max(length, 0))
            if length < 0 or partitions < 0:
                return iter(())
            position += 6 + length
            indexes = struct.unpack_from(f">{partitions}i", assignment, position)
            position += 4 * partitions
            found += [(topic, index) for index in indexes]
    except (struct.error, UnicodeDecodeError):
        return iter(())
    return iter(found)
