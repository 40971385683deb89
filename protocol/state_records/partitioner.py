"""The partition of an internal topic that keeps the state of a group, or of whatever else a name stands for."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

NAME_LENGTH_MAX: Final = 1024
"""A longer name takes too long to hash, and is refused."""


@lru_cache(maxsize=1024)
def partition_of(name: str, partition_count: int) -> int:
    """The absolute value of Java's `String.hashCode`, modulo the number of partitions, as in Kafka.

    Remembered for the last thousand: members of a group name it in every request.
    """
    units = name.encode("utf-16-be")
    hashed = 0
    for index in range(0, len(units), 2):
        hashed = (31 * hashed + (units[index] << 8 | units[index + 1])) & 0xFFFFFFFF
    signed = hashed - (hashed >> 31 << 32)
    return (0 if signed == -(1 << 31) else abs(signed)) % partition_count
