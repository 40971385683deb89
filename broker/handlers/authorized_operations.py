"""Authorized operations: the bits by which Metadata and others show what a client may do.

Bit n is Kafka's `AclOperation` n. Without an authorizer, every operation that a resource supports
is allowed and reported, as in Kafka.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from echoless.protocol.acl import CLUSTER_NAME, SUPPORTED, AclOperation, ResourceType

if TYPE_CHECKING:
    from echoless.broker.authorization.access import Rights

NOT_ASKED: Final = -(2**31)
"""The value if the client did not ask, or there is no such resource."""


def _bits(operations: Iterable[AclOperation]) -> int:
    return sum(1 << operation for operation in operations)


_TOPIC_BITS: Final = _bits(SUPPORTED[ResourceType.TOPIC])
_GROUP_BITS: Final = _bits(SUPPORTED[ResourceType.GROUP])
_CLUSTER_BITS: Final = _bits(SUPPORTED[ResourceType.CLUSTER])


def topic_operations(rights: Rights | None, name: str | None, *, asked: bool) -> int:
    """The operations that the client may do with a topic; without a name there is none."""
    if not asked or not name:
        return NOT_ASKED
    return _TOPIC_BITS if rights is None else rights.operations(ResourceType.TOPIC, name)


def group_operations(rights: Rights | None, name: str, *, asked: bool) -> int:
    """The operations that the client may do with a group, whether or not it exists."""
    if not asked:
        return NOT_ASKED
    return _GROUP_BITS if rights is None else rights.operations(ResourceType.GROUP, name)


def cluster_operations(rights: Rights | None, *, asked: bool) -> int:
    """The operations that the client may do with the cluster; none for one that may not describe it."""
    if not asked:
        return NOT_ASKED
    if rights is None:
        return _CLUSTER_BITS
    if not rights.may_with_cluster(AclOperation.DESCRIBE):
        return 0
    return rights.operations(ResourceType.CLUSTER, CLUSTER_NAME)
