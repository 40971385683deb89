"""The nodes of ACLs are Kafka's, and hostile data is refused.

The examples of `docs/formats/coordination-nodes.md` are compared in `tests/broker/metadata/test_node_data.py`.
"""

from __future__ import annotations

import pytest

from echoless.broker.authorization.acl_nodes import (
    AclDataError,
    acl_path,
    change_prefix,
    decode_change,
    decode_entries,
    encode_change,
    encode_entries,
)
from echoless.protocol.acl import (
    AclOperation,
    Entry,
    Pattern,
    PatternType,
    Permission,
    ResourceType,
)

LITERAL, PREFIXED = PatternType.LITERAL, PatternType.PREFIXED
ORDERS = Pattern(ResourceType.TOPIC, LITERAL, "orders")
OF_A_PREFIX = Pattern(ResourceType.TRANSACTIONAL_ID, PREFIXED, "app-")
READ = Entry("User:alice", "*", AclOperation.READ, Permission.ALLOW)


def test_paths() -> None:
    """Types are in Pascal case, `prefixed` is not; a wildcard is a literal name."""
    assert acl_path(ORDERS) == "/kafka-acl/Topic/orders"
    assert acl_path(ORDERS._replace(name="*")) == "/kafka-acl/Topic/*"
    assert acl_path(OF_A_PREFIX) == "/kafka-acl-extended/prefixed/TransactionalId/app-"
    assert change_prefix(ORDERS) == "/kafka-acl-changes/acl_changes_"
    assert encode_change(ORDERS) == b"TOPIC:orders"
    assert change_prefix(OF_A_PREFIX) == "/kafka-acl-extended-changes/acl_changes_"


@pytest.mark.parametrize("operation", list(AclOperation))
@pytest.mark.parametrize("permission", list(Permission))
def test_entries_are_read_as_they_were_written(
    operation: AclOperation, permission: Permission
) -> None:
    """Every operation and permission has a name of its own."""
    entries = frozenset({READ, Entry("User:bob", "10.0.0.1", operation, permission)})
    assert decode_entries(encode_entries(entries)) == entries


@pytest.mark.parametrize("resource_type", list(ResourceType))
@pytest.mark.parametrize("pattern_type", list(PatternType))
def test_changes_are_read_as_they_were_written(
    resource_type: ResourceType, pattern_type: PatternType
) -> None:
    """A name may have colons."""
    pattern = Pattern(resource_type, pattern_type, "a:b")
    assert decode_change(pattern_type, encode_change(pattern)) == pattern


def test_any_order_is_read_and_a_missing_host_is_any() -> None:
    """Kafka's maps have no order; a host was not always written."""
    data = b'{"acls":[{"operation":"Read","permissionType":"Allow","principal":"User:alice"}],"version":1}'
    assert decode_entries(data) == {READ}


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xff",
        b"[" * 100_000,
        b"[]",
        b"7",
        b"{}",
        b'{"version":2,"acls":[]}',
        b'{"version":1,"acls":[7]}',
        b'{"version":1,"acls":[{"principal":"User:a","permissionType":"Allow","operation":"Fly"}]}',
        b'{"version":1,"acls":[{"principal":"User:a","permissionType":"No","operation":"Read"}]}',
        b'{"version":1,"acls":[{"permissionType":"Allow","operation":"Read"}]}',
        b'{"version":1,"acls":[{"principal":"\\uD800","permissionType":"Allow","operation":"Read"}]}',
    ],
)
def test_what_is_no_list_of_acls_is_refused(data: bytes) -> None:
    """Nothing is guessed: an unknown word may be a denial."""
    with pytest.raises(AclDataError):
        decode_entries(data)


@pytest.mark.parametrize(
    "data", [b"", b"\xff", b"orders", b"[]", b"{}", b'{"name":"x"}', b"[" * 100_000]
)
@pytest.mark.parametrize("pattern_type", list(PatternType))
def test_what_is_no_announcement_is_refused(pattern_type: PatternType, data: bytes) -> None:
    """Its reader lists everything instead."""
    with pytest.raises(AclDataError):
        decode_change(pattern_type, data)


@pytest.mark.parametrize("name", ["", "a//b", "a/b", "..", "a\0b"])
@pytest.mark.parametrize("pattern_type", list(PatternType))
def test_an_announcement_of_a_name_that_no_node_has_is_refused(
    pattern_type: PatternType, name: str
) -> None:
    """It would be read as a path."""
    announced = Pattern(ResourceType.TOPIC, pattern_type, name)
    with pytest.raises(AclDataError):
        decode_change(pattern_type, encode_change(announced))


def test_an_announcement_of_half_a_character_is_refused() -> None:
    """JSON can name what no path can."""
    with pytest.raises(AclDataError):
        decode_change(PREFIXED, encode_change(OF_A_PREFIX).replace(b"app-", b"\\ud800"))
