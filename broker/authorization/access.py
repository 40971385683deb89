"""Access: what each client may do, by the cluster's ACLs.

`Services.access` is one if `authorizer=acl`; without one, everyone may do everything, and nothing here is
imported. `Access.rights` are those of a connection; connections of one principal and host share them.
Answers are remembered by name, so that a request costs one look-up per topic, and forgotten at each
change of an ACL.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final
from weakref import WeakValueDictionary

from echoless.broker.authorization.acl_store import AclStore
from echoless.broker.config.names import IdempotentWriteAcl
from echoless.protocol.acl import (
    CLUSTER_NAME,
    SUPPORTED,
    AclAuthorizer,
    AclOperation,
    Acls,
    Entries,
    Pattern,
    ResourceType,
    java_host,
)

if TYPE_CHECKING:
    from random import Random

    from echoless.broker.config.loading import Config
    from echoless.broker.network.request import Peer
    from echoless.broker.tree.node_tree import NodeTree

REMEMBERED_MAX: Final = 10_000
"""Names for which each client's rights are remembered, per operation."""
REMEMBERED_BY_ALL_MAX: Final = 200_000
"""The same for all clients together, since everything was last forgotten: a client chooses names as it likes."""
NAME_LENGTH_MAX: Final = 249
"""Longer names are of no topic, and not worth remembering."""


class Allowed(dict[str, bool]):
    """Whether a client may do one thing with a resource, by name; decided when it is first asked."""

    def __init__(
        self, rights: Rights, operation: AclOperation, resource_type: ResourceType
    ) -> None:
        super().__init__()
        self._question = rights, operation, resource_type

    def __missing__(self, name: str) -> bool:
        rights, operation, resource_type = self._question
        is_allowed = rights.decide(operation, resource_type, name)
        if len(name) <= NAME_LENGTH_MAX:
            if len(self) >= REMEMBERED_MAX:
                self.clear()
            self[name] = is_allowed
            rights.remembered()
        return is_allowed


class Rights:
    """The rights of one principal, connected from one host."""

    def __init__(
        self,
        rule: AclAuthorizer,
        principal: str,
        host: str,
        remembered: Callable[[], None] = lambda: None,
    ) -> None:
        """`remembered` is called for each name that is remembered; it may forget them."""
        self.principal = principal
        self.remembered = remembered
        self._rule = rule
        self._host = host
        self._allowed: dict[tuple[int, int], Allowed] = {}
        self._any: dict[tuple[int, int], bool] = {}
        self.version = 0
        """Raised by every change of an ACL: what was allowed before may not be so now."""

    def allowed(self, operation: AclOperation, resource_type: ResourceType) -> Mapping[str, bool]:
        """The answers for resources of a type, by name. Not to be kept: the next request asks again."""
        allowed = self._allowed.get((operation, resource_type))
        if allowed is None:
            allowed = self._allowed[operation, resource_type] = Allowed(
                self, operation, resource_type
            )
        return allowed

    def may(self, operation: AclOperation, resource_type: ResourceType, name: str) -> bool:
        """Whether the client may do this with the resource."""
        return self.allowed(operation, resource_type)[name]

    def may_with_cluster(self, operation: AclOperation) -> bool:
        """Whether the client may do this with the cluster."""
        return self.allowed(operation, ResourceType.CLUSTER)[CLUSTER_NAME]

    def may_with_any(self, operation: AclOperation, resource_type: ResourceType) -> bool:
        """Whether the client may do this with some resource of the type, whether it exists or not."""
        key = operation, resource_type
        if key not in self._any:
            self._any[key] = self._rule.allows_any(
                self.principal, self._host, operation, resource_type
            )
        return self._any[key]

    def operations(self, resource_type: ResourceType, name: str) -> int:
        """The bits of the operations that the client may do with the resource."""
        return sum(
            1 << operation
            for operation in SUPPORTED[resource_type]
            if self.may(operation, resource_type, name)
        )

    def decide(self, operation: AclOperation, resource_type: ResourceType, name: str) -> bool:
        """The answer by the ACLs as they are now, not by memory."""
        return self._rule.allows(self.principal, self._host, operation, resource_type, name)

    def forget(self) -> None:
        """Forgets all answers: the ACLs have changed."""
        self.version += 1
        self._allowed.clear()
        self._any.clear()


class Access:
    """The authorizer of one broker."""

    def __init__(self, config: Config, tree: NodeTree, rng: Random) -> None:
        self.needs_idempotent_write = config.idempotent_write_acl is IdempotentWriteAcl.CLUSTER
        """Whether idempotent producers need IdempotentWrite on the cluster, as before Kafka 2.8."""
        self._store = AclStore(tree, rng, self._forget)
        self._rule = AclAuthorizer(
            self._store.acls,
            frozenset(config.super_users),
            config.allow_everyone_if_no_acl_found,
        )
        self._rights: WeakValueDictionary[tuple[str, str], Rights] = WeakValueDictionary()
        """The rights of all open connections, which hold them."""
        self._remembered = 0
        """Names remembered since everything was last forgotten."""

    async def start(self) -> None:
        """Reads the ACLs, and follows them. Raises `CoordinationError`."""
        await self._store.start()

    async def close(self) -> None:
        """Follows them no longer."""
        await self._store.close()

    def rights(self, peer: Peer) -> Rights:
        """The rights of the client of a connection."""
        known: Rights | None = peer.rights
        if known is not None and known.principal == peer.principal:
            return known
        key = peer.principal, java_host(peer.host)
        rights = self._rights.get(key)
        if rights is None:
            rights = self._rights[key] = Rights(self._rule, *key, self._count_remembered)
        peer.rights = rights
        return rights

    @property
    def acls(self) -> Acls:
        """All ACLs."""
        return self._store.acls

    async def add(self, pattern: Pattern, entries: Entries) -> None:
        """Adds entries to a pattern; those that it has stay. Raises `AclChangeError`."""
        await self._store.update(pattern, lambda before: before | entries)

    async def remove(self, pattern: Pattern, entries: Entries) -> Entries:
        """Removes entries of a pattern; returns those that were there. Raises `AclChangeError`."""
        before, after = await self._store.update(pattern, lambda before: before - entries)
        return before - after

    def _count_remembered(self) -> None:
        self._remembered += 1
        if self._remembered >= REMEMBERED_BY_ALL_MAX:
            self._forget()

    def _forget(self) -> None:
        self._remembered = 0
        for rights in list(self._rights.values()):
            rights.forget()
