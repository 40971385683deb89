"""ACLs and filters of ACLs as DescribeAcls, CreateAcls and DeleteAcls carry them.

Without an authorizer there are none: the three APIs answer SECURITY_DISABLED.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from echoless.broker.authorization.acl_nodes import acl_path
from echoless.broker.tree.node_tree import check_path
from echoless.protocol.acl import (
    ANY,
    CLUSTER_NAME,
    MATCH,
    AclOperation,
    Binding,
    BindingFilter,
    Entry,
    Pattern,
    PatternType,
    Permission,
    ResourceType,
    java_host,
)
from echoless.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from echoless.broker.authorization.access import Access
    from echoless.broker.services import Services

NO_AUTHORIZER: Final = "No Authorizer is configured on the broker."


def find_access(services: Services) -> Access:
    """Raises `KafkaError` SECURITY_DISABLED if the broker has no authorizer."""
    if services.access is None:
        raise KafkaError(ErrorCode.SECURITY_DISABLED, NO_AUTHORIZER)
    return services.access


def read_binding(creation: Any) -> Binding:
    """The ACL to be created. Raises `KafkaError` INVALID_REQUEST."""
    try:
        pattern = Pattern(
            ResourceType(creation.resource_type),
            PatternType(creation.resource_pattern_type),
            creation.resource_name,
        )
        operation, permission = (
            AclOperation(creation.operation),
            Permission(creation.permission_type),
        )
    except ValueError as error:
        raise _invalid(f"the ACL is not complete or not known: {error}") from error
    entry = Entry(creation.principal, java_host(creation.host), operation, permission)
    check_binding(Binding(pattern, entry))
    return Binding(pattern, entry)


def check_binding(binding: Binding) -> None:
    """Raises `KafkaError` INVALID_REQUEST for an ACL that cannot be stored, or would never apply."""
    _check_name(binding.pattern)
    _check_principal(binding.entry)


def _check_name(pattern: Pattern) -> None:
    if not pattern.name:
        raise _invalid("Invalid empty resource name")
    if pattern.resource_type is ResourceType.CLUSTER and pattern.name != CLUSTER_NAME:
        raise _invalid(f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}")
    if "/" in pattern.name:
        raise _invalid(f"the name {pattern.name!r} has a slash, which the coordinator cannot store")
    try:
        check_path(acl_path(pattern))
    except ValueError as error:
        raise _invalid(f"the coordinator cannot store the name {pattern.name!r}") from error


def _check_principal(entry: Entry) -> None:
    kind, _, name = entry.principal.partition(":")
    if not kind or not name:
        raise _invalid(f"expected a principal as User:alice, not {entry.principal!r}")
    if not entry.host:
        raise _invalid("expected a host, or * for all of them")


def read_filter(wanted: Any) -> BindingFilter:
    """The filter of a request. Raises `KafkaError` INVALID_REQUEST for an unknown word in it."""
    for field, kind, more in (
        ("resource_type_filter", ResourceType, {ANY}),
        ("pattern_type_filter", PatternType, {ANY, MATCH}),
        ("operation", AclOperation, {ANY}),
        ("permission_type", Permission, {ANY}),
    ):
        value = getattr(wanted, field)
        if value not in more and value not in set(map(int, kind)):
            raise _invalid(f"The filter contains UNKNOWN elements: {field} {value}")
    return BindingFilter(
        wanted.resource_type_filter,
        wanted.resource_name_filter,
        wanted.pattern_type_filter,
        wanted.principal_filter,
        None if wanted.host_filter is None else java_host(wanted.host_filter),
        wanted.operation,
        wanted.permission_type,
    )


def pattern_fields(pattern: Pattern) -> dict[str, Any]:
    """The fields of a response that name the resources of an ACL."""
    return {
        "resource_type": int(pattern.resource_type),
        "resource_name": pattern.name,
        "pattern_type": int(pattern.pattern_type),
    }


def entry_fields(entry: Entry) -> dict[str, Any]:
    """The fields of a response that say who may do what."""
    return {
        "principal": entry.principal,
        "host": entry.host,
        "operation": int(entry.operation),
        "permission_type": int(entry.permission),
    }


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, message)
