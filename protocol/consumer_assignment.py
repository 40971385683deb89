"""The assignments that members of a group of the type "consumer" get. Pure."""

from __future__ import annotations

import struct

Partition = tuple[str, int]


def assigned_partitions(assignment: bytes, most: int = 2**31) -> list[Partition]:
    """The partitions in an assignment of the type "consumer", `most` of them at most; none if it is of another type.

    Format: version i16, an array of topics (string, array of i32), user data; big-endian.
    """
    found: list[Partition] = []
    try:
        (count,) = struct.unpack_from(">2xi", assignment)
        position = 6
        for _ in range(count):
            (length,) = struct.unpack_from(">h", assignment, position)
            topic = assignment[position + 2 : position + 2 + length].decode()
            (partitions,) = struct.unpack_from(">i", assignment, position + 2 + max(length, 0))
            if length < 0 or partitions < 0:
                return []
            position += 6 + length
            taken = min(partitions, most - len(found))
            indexes = struct.unpack_from(f">{taken}i", assignment, position)
            found += [(topic, index) for index in indexes]
            position += 4 * partitions
            if len(found) >= most or position > len(assignment):
                break
    except (struct.error, UnicodeDecodeError):
        return []
    return found
