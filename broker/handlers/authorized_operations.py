"""Authorized operations: the bits by which Metadata and others show what a client may do.

Bit n is Kafka's `AclOperation` n. Without an authorizer, every operation that a resource supports
is allowed and reported, as in Kafka. Pure.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from typing import Final

NOT_ASKED: Final = -(2**31)
"""The value if the client did not ask, or there is no such resource."""


class AclOperation(enum.IntEnum):
    """Kafka's numbers for operations."""

    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12


_ON_TOPICS: Final = frozenset(AclOperation) - {
    AclOperation.CLUSTER_ACTION,
    AclOperation.IDEMPOTENT_WRITE,
}
_ON_THE_CLUSTER: Final = frozenset(AclOperation) - {
    AclOperation.READ,
    AclOperation.WRITE,
    AclOperation.DELETE,
}


def _bits(operations: Iterable[AclOperation]) -> int:
    return sum(1 << operation for operation in operations)


_TOPIC_BITS: Final = _bits(_ON_TOPICS)
_CLUSTER_BITS: Final = _bits(_ON_THE_CLUSTER)


def topic_operations(*, asked: bool) -> int:
    """The operations allowed on any topic."""
    return _TOPIC_BITS if asked else NOT_ASKED


def cluster_operations(*, asked: bool) -> int:
    """The operations allowed on the cluster."""
    return _CLUSTER_BITS if asked else NOT_ASKED
