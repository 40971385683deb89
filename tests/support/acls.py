"""ACLs of a broker in the test's own process, written as an administrator would."""

from __future__ import annotations

from typing import Any

from echoless.broker.authorization.access import Access
from echoless.broker.network.request import ANONYMOUS
from echoless.protocol.acl import (
    CLUSTER_NAME,
    AclOperation,
    Entry,
    Pattern,
    PatternType,
    Permission,
    ResourceType,
)

TOPIC, GROUP, CLUSTER = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER
TRANSACTIONAL_ID = ResourceType.TRANSACTIONAL_ID


class AclEditor:
    """Adds and removes ACLs, by default for clients that have not authenticated."""

    def __init__(self, access: Access | None) -> None:
        assert access is not None, "the broker has no authorizer"
        self.access = access

    async def allow(self, operation: AclOperation, name: str = CLUSTER_NAME, **more: Any) -> None:
        """Allows it on a topic; without a name, on the cluster."""
        await self.access.add(*acl(Permission.ALLOW, operation, name, **more))

    async def deny(self, operation: AclOperation, name: str = CLUSTER_NAME, **more: Any) -> None:
        """Denies it likewise."""
        await self.access.add(*acl(Permission.DENY, operation, name, **more))

    async def revoke(self, operation: AclOperation, name: str = CLUSTER_NAME, **more: Any) -> None:
        """Takes back what was allowed."""
        removed = await self.access.remove(*acl(Permission.ALLOW, operation, name, **more))
        assert removed


def acl(
    permission: Permission,
    operation: AclOperation,
    name: str,
    *,
    resource_type: ResourceType | None = None,
    prefixed: bool = False,
    principal: str = ANONYMOUS,
    host: str = "*",
) -> tuple[Pattern, frozenset[Entry]]:
    """A pattern and its one entry."""
    resource_type = resource_type or (CLUSTER if name == CLUSTER_NAME else TOPIC)
    pattern_type = PatternType.PREFIXED if prefixed else PatternType.LITERAL
    entry = Entry(principal, host, operation, permission)
    return Pattern(resource_type, pattern_type, name), frozenset({entry})
