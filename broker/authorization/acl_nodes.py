"""The nodes that hold ACLs, and those that announce changes of them: Apache Kafka's paths and JSON.

What Echoless writes a Kafka broker of the ZooKeeper era obeys, and the other way round. Knows nothing of
when they are read and written (`acl_store.py`).
"""

from __future__ import annotations

import json
from typing import Any, Final

from echoless.broker.tree.node_json import decode_node_json
from echoless.broker.tree.node_tree import check_path
from echoless.protocol.acl import (
    AclOperation,
    Entries,
    Entry,
    Pattern,
    PatternType,
    Permission,
    ResourceType,
    java_host,
)

CHANGES: Final = {
    PatternType.LITERAL: "/kafka-acl-changes",
    PatternType.PREFIXED: "/kafka-acl-extended-changes",
}
"""The parent of the nodes that announce a change, by the type of the pattern whose entries changed."""
_CHANGE_PREFIX: Final = "acl_changes_"
_VERSION: Final = 1


class AclDataError(Exception):
    """A node holds something that is no list of ACLs, or no announcement of one."""


class AclChangeError(Exception):
    """A change that was not made, or may not have been, or was not announced; it may be repeated."""


def _pascal(one: ResourceType | AclOperation | Permission) -> str:
    return "".join(map(str.capitalize, one.name.split("_")))


_TYPES: Final = {_pascal(one): one for one in ResourceType}
_OPERATIONS: Final = {_pascal(one): one for one in AclOperation}
_PERMISSIONS: Final = {_pascal(one): one for one in Permission}


def type_path(resource_type: ResourceType, pattern_type: PatternType) -> str:
    """The parent of the nodes with ACLs for resources of a type."""
    is_literal = pattern_type is PatternType.LITERAL
    root = "/kafka-acl" if is_literal else "/kafka-acl-extended/prefixed"
    return f"{root}/{_pascal(resource_type)}"


def acl_path(pattern: Pattern) -> str:
    """The node with the entries of a pattern."""
    return f"{type_path(pattern.resource_type, pattern.pattern_type)}/{pattern.name}"


def standing_paths() -> list[str]:
    """The nodes that are there before any ACL is."""
    types = [type_path(one, pattern_type) for one in ResourceType for pattern_type in PatternType]
    return [*types, *CHANGES.values()]


def encode_entries(entries: Entries) -> bytes:
    """The data of a pattern's node, the same for the same entries."""
    acls = [
        {
            "principal": entry.principal,
            "permissionType": _pascal(entry.permission),
            "operation": _pascal(entry.operation),
            "host": entry.host,
        }
        for entry in sorted(entries)
    ]
    return json.dumps({"version": _VERSION, "acls": acls}, separators=(",", ":")).encode()


def decode_entries(data: bytes) -> Entries:
    """Raises `AclDataError`."""
    try:
        content = decode_node_json(data)
        if content["version"] != _VERSION:
            raise AclDataError(
                f"version {content['version']}, perhaps of a newer release; {_VERSION} is known"
            )
        return frozenset(map(_entry, content["acls"]))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise AclDataError(f"no list of ACLs ({error!r})") from error


def _entry(acl: dict[str, Any]) -> Entry:
    return Entry(
        str(acl["principal"]),
        java_host(str(acl.get("host", "*"))),
        _OPERATIONS[acl["operation"]],
        _PERMISSIONS[acl["permissionType"]],
    )


def change_prefix(pattern: Pattern) -> str:
    """The path of the sequential node that announces a change, without its number."""
    return f"{CHANGES[pattern.pattern_type]}/{_CHANGE_PREFIX}"


def encode_change(pattern: Pattern) -> bytes:
    """The data of that node."""
    if pattern.pattern_type is PatternType.LITERAL:
        return f"{pattern.resource_type.name}:{pattern.name}".encode()
    content = {
        "version": _VERSION,
        "resourceType": pattern.resource_type.name,
        "name": pattern.name,
        "patternType": pattern.pattern_type.name,
    }
    return json.dumps(content, separators=(",", ":")).encode()


def decode_change(pattern_type: PatternType, data: bytes) -> Pattern:
    """The pattern whose entries have changed. Raises `AclDataError`."""
    try:
        if pattern_type is PatternType.LITERAL:
            type_name, _, name = data.decode().partition(":")
            return _checked(Pattern(ResourceType[type_name.upper()], pattern_type, name))
        content = decode_node_json(data)
        return _checked(
            Pattern(
                ResourceType[content["resourceType"].upper()],
                PatternType[content["patternType"].upper()],
                str(content["name"]),
            )
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise AclDataError(f"no announcement of a changed ACL ({error!r})") from error


def _checked(pattern: Pattern) -> Pattern:
    """Raises `ValueError` for a name that no node can have: it would be read as a path."""
    if "/" in pattern.name:
        raise ValueError(f"the name {pattern.name!r} has a slash")
    check_path(acl_path(pattern))
    return pattern
