"""Access control lists: the rule that decides whether a principal may do something, as Kafka's authorizer has it.

An ACL (`Binding`) names a resource by a pattern, and says who may do what with it, or may not. `Acls`
holds those of a cluster, and `AclAuthorizer` applies them. Deny goes before allow, nothing is allowed by default,
and only on the allowing side do operations imply others. Pure; where ACLs are kept is up to the caller.

Hosts are compared as Java writes addresses (`java_host`): Kafka stores them so.
"""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple


class ResourceType(enum.IntEnum):
    """Kafka's `ResourceType` codes."""

    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class AclOperation(enum.IntEnum):
    """Kafka's `AclOperation` codes; bit n of authorised operations is the operation n."""

    ALL = 2
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
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class Permission(enum.IntEnum):
    """Kafka's `AclPermissionType` codes."""

    DENY = 2
    ALLOW = 3


class PatternType(enum.IntEnum):
    """Kafka's `PatternType` codes that an ACL can have; a filter has two more (`ANY`, `MATCH`)."""

    LITERAL = 3
    PREFIXED = 4


ANY: Final = 1
"""In a filter: any resource type, pattern type, operation or permission."""
MATCH: Final = 2
"""In a filter, as pattern type: every pattern that covers the name."""
WILDCARD: Final = "*"
"""The wildcard. As a literal name: every resource of the type; as a host: every host."""
WILDCARD_PRINCIPAL: Final = "User:*"
CLUSTER_NAME: Final = "kafka-cluster"
"""The only name of a resource of type CLUSTER."""

_T, _O = ResourceType, AclOperation
SUPPORTED: Final[Mapping[ResourceType, frozenset[AclOperation]]] = {
    _T.TOPIC: frozenset(
        {
            *(_O.READ, _O.WRITE, _O.CREATE, _O.DELETE, _O.ALTER, _O.DESCRIBE),
            *(_O.DESCRIBE_CONFIGS, _O.ALTER_CONFIGS),
        }
    ),
    _T.GROUP: frozenset({_O.READ, _O.DELETE, _O.DESCRIBE}),
    _T.CLUSTER: frozenset(
        {
            *(_O.CREATE, _O.ALTER, _O.DESCRIBE, _O.CLUSTER_ACTION, _O.DESCRIBE_CONFIGS),
            *(_O.ALTER_CONFIGS, _O.IDEMPOTENT_WRITE),
        }
    ),
    _T.TRANSACTIONAL_ID: frozenset({_O.WRITE, _O.DESCRIBE, _O.TWO_PHASE_COMMIT}),
    _T.DELEGATION_TOKEN: frozenset({_O.DESCRIBE}),
    _T.USER: frozenset({_O.CREATE_TOKENS, _O.DESCRIBE_TOKENS}),
}
"""The operations that a resource of each type has, besides ALL."""
_ALLOWED_BY: Final[Mapping[AclOperation, frozenset[AclOperation]]] = {
    one: frozenset({one, _O.ALL}) for one in AclOperation
} | {
    _O.DESCRIBE: frozenset({_O.DESCRIBE, _O.ALL, _O.READ, _O.WRITE, _O.DELETE, _O.ALTER}),
    _O.DESCRIBE_CONFIGS: frozenset({_O.DESCRIBE_CONFIGS, _O.ALL, _O.ALTER_CONFIGS}),
}
"""The operations of entries that allow each operation; only the operation itself and ALL deny it."""


class Pattern(NamedTuple):
    """The resources that an ACL is about."""

    resource_type: ResourceType
    pattern_type: PatternType
    name: str

    def covers(self, name: str) -> bool:
        """Whether the resource of this name (and the pattern's type) is one of them."""
        if self.pattern_type is PatternType.PREFIXED:
            return name.startswith(self.name)
        return self.name in {name, WILDCARD}


class Entry(NamedTuple):
    """The right of one principal to do something, or its denial."""

    principal: str
    host: str
    operation: AclOperation
    permission: Permission


class Binding(NamedTuple):
    """One ACL."""

    pattern: Pattern
    entry: Entry


Entries = frozenset[Entry]
NO_ENTRIES: Final[Entries] = frozenset()


class BindingFilter(NamedTuple):
    """The ACLs that a request asks for or deletes; None and `ANY` leave a field open.

    `host` is written as Java does (`java_host`).
    """

    resource_type: int = ANY
    name: str | None = None
    pattern_type: int = ANY
    principal: str | None = None
    host: str | None = None
    operation: int = ANY
    permission: int = ANY

    def matches(self, binding: Binding) -> bool:
        """Whether the ACL is one of those asked for."""
        return self.matches_pattern(binding.pattern) and self.matches_entry(binding.entry)

    def matches_pattern(self, pattern: Pattern) -> bool:
        """Whether ACLs of this pattern can be among them."""
        if self.resource_type not in {ANY, pattern.resource_type}:
            return False
        if self.pattern_type not in {ANY, MATCH, pattern.pattern_type}:
            return False
        if self.name is None:
            return True
        if self.pattern_type == MATCH:
            return pattern.covers(self.name)
        return self.name == pattern.name

    def matches_entry(self, entry: Entry) -> bool:
        """Whether the entry can belong to one of them."""
        return (
            self.principal in {None, entry.principal}
            and self.host in {None, entry.host}
            and self.operation in {ANY, entry.operation}
            and self.permission in {ANY, entry.permission}
        )


def java_host(text: str) -> str:
    """The address as Java's `getHostAddress` writes it: IPv6 uncompressed, IPv4 in IPv6 as IPv4.

    What is no address is returned as it is; no address equals it.
    """
    import ipaddress  # noqa: PLC0415 - takes 1 ms, and few brokers have ACLs

    address, scope_mark, scope = text.strip("[]").partition("%")
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return text
    if isinstance(parsed, ipaddress.IPv4Address):
        return str(parsed)
    if parsed.ipv4_mapped is not None:
        return str(parsed.ipv4_mapped)
    groups = parsed.exploded.split(":")
    return ":".join(f"{int(group, 16):x}" for group in groups) + scope_mark + scope


@dataclass(slots=True, repr=False, eq=False)
class _OfType:
    """The ACLs of one resource type, by name."""

    literal: dict[str, Entries] = field(default_factory=dict)
    prefixed: dict[str, Entries] = field(default_factory=dict)
    prefix_lengths: Counter[int] = field(default_factory=Counter)
    """Number of prefixes by length: only these lengths are looked up."""

    def named(self, pattern_type: PatternType) -> dict[str, Entries]:
        return self.literal if pattern_type is PatternType.LITERAL else self.prefixed

    def of(self, name: str) -> list[Entries]:
        """The entries of every pattern that covers the name."""
        lengths = (length for length in self.prefix_lengths if length <= len(name))
        found = [self.prefixed.get(name[:length]) for length in lengths]
        found += [self.literal.get(name), self.literal.get(WILDCARD)]
        return [entries for entries in found if entries]


class Acls:
    """All ACLs of a cluster."""

    def __init__(self, bindings: Iterable[Binding] = ()) -> None:
        self._by_type = {one: _OfType() for one in ResourceType}
        for pattern, entry in bindings:
            self.put(pattern, self.get(pattern) | {entry})

    def __iter__(self) -> Iterator[Binding]:
        """Every ACL."""
        for pattern in self.patterns():
            for entry in self.get(pattern):
                yield Binding(pattern, entry)

    def patterns(self) -> list[Pattern]:
        """Every pattern that has entries."""
        return [
            Pattern(resource_type, pattern_type, name)
            for resource_type, of_type in self._by_type.items()
            for pattern_type in PatternType
            for name in of_type.named(pattern_type)
        ]

    def get(self, pattern: Pattern) -> Entries:
        """The entries of exactly this pattern."""
        named = self._by_type[pattern.resource_type].named(pattern.pattern_type)
        return named.get(pattern.name, NO_ENTRIES)

    def put(self, pattern: Pattern, entries: Entries) -> None:
        """Replaces the entries of a pattern; without entries it is forgotten."""
        of_type = self._by_type[pattern.resource_type]
        named = of_type.named(pattern.pattern_type)
        was_there = named.pop(pattern.name, None) is not None
        if entries:
            named[pattern.name] = entries
        if pattern.pattern_type is PatternType.PREFIXED and was_there != bool(entries):
            length = len(pattern.name)
            of_type.prefix_lengths[length] += 1 if entries else -1
            if not of_type.prefix_lengths[length]:
                del of_type.prefix_lengths[length]

    def of(self, resource_type: ResourceType, name: str) -> list[Entries]:
        """The entries of every pattern that covers a resource."""
        return self._by_type[resource_type].of(name)

    def named(
        self, resource_type: ResourceType, pattern_type: PatternType
    ) -> Mapping[str, Entries]:
        """The entries of a resource type, by the name in their patterns."""
        return self._by_type[resource_type].named(pattern_type)


class AclAuthorizer(NamedTuple):
    """Decides by a cluster's ACLs."""

    acls: Acls
    super_users: frozenset[str] = frozenset()
    """Principals that may do everything, whatever ACLs say."""
    allow_everyone_if_no_acl_found: bool = False
    """Whether a resource without any ACL is open to everyone."""

    def allows(
        self,
        principal: str,
        host: str,
        operation: AclOperation,
        resource_type: ResourceType,
        name: str,
    ) -> bool:
        """Whether the principal, connected from `host` (`java_host`), may do this."""
        if principal in self.super_users:
            return True
        found = self.acls.of(resource_type, name)
        if not found:
            return self.allow_everyone_if_no_acl_found
        allowing, is_allowed = _ALLOWED_BY[operation], False
        for entries in found:
            for entry in entries:
                if not _is_about(entry, principal, host):
                    continue
                if entry.permission is Permission.DENY:
                    if entry.operation in {operation, AclOperation.ALL}:
                        return False
                elif entry.operation in allowing:
                    is_allowed = True
        return is_allowed

    def allows_any(
        self, principal: str, host: str, operation: AclOperation, resource_type: ResourceType
    ) -> bool:
        """Whether the principal may do this with at least one resource that may exist (KIP-679).

        An allowed name counts unless it is denied in whole: by the same literal, or a prefix of it.
        """
        if principal in self.super_users:
            return True

        def names(pattern_type: PatternType, permission: Permission) -> Iterator[str]:
            for name, entries in self.acls.named(resource_type, pattern_type).items():
                if any(
                    entry.permission is permission
                    and entry.operation in {operation, AclOperation.ALL}
                    and _is_about(entry, principal, host)
                    for entry in entries
                ):
                    yield name

        denied = set(names(PatternType.LITERAL, Permission.DENY))
        if WILDCARD in denied:
            return False
        if self.allow_everyone_if_no_acl_found:
            return True
        denied_prefixes = set(names(PatternType.PREFIXED, Permission.DENY))

        def is_denied_by_prefix(name: str) -> bool:
            return any(name[:length] in denied_prefixes for length in range(1, len(name) + 1))

        return any(
            name == WILDCARD or (name not in denied and not is_denied_by_prefix(name))
            for name in names(PatternType.LITERAL, Permission.ALLOW)
        ) or any(
            not is_denied_by_prefix(prefix)
            for prefix in names(PatternType.PREFIXED, Permission.ALLOW)
        )


def _is_about(entry: Entry, principal: str, host: str) -> bool:
    return entry.principal in {principal, WILDCARD_PRINCIPAL} and entry.host in {host, WILDCARD}
