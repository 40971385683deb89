"""The rule of access control lists: Kafka's, case by case and against a naive model."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from echoless.protocol.acl import (
    ANY,
    MATCH,
    AclAuthorizer,
    AclOperation,
    Acls,
    Binding,
    BindingFilter,
    Entry,
    Pattern,
    PatternType,
    Permission,
    ResourceType,
    java_host,
)

ALICE, BOB = "User:alice", "User:bob"
HOST = "10.0.0.9"
READ, WRITE, ALL = AclOperation.READ, AclOperation.WRITE, AclOperation.ALL
DESCRIBE = AclOperation.DESCRIBE


def acl(
    operation: AclOperation,
    name: str,
    *,
    deny: bool = False,
    prefixed: bool = False,
    principal: str = ALICE,
    host: str = "*",
    resource_type: ResourceType = ResourceType.TOPIC,
) -> Binding:
    pattern_type = PatternType.PREFIXED if prefixed else PatternType.LITERAL
    permission = Permission.DENY if deny else Permission.ALLOW
    return Binding(
        Pattern(resource_type, pattern_type, name), Entry(principal, host, operation, permission)
    )


def may(operation: AclOperation, name: str, *acls: Binding, **rule: object) -> bool:
    return AclAuthorizer(Acls(acls), **rule).allows(
        ALICE, HOST, operation, ResourceType.TOPIC, name
    )


def may_any(*acls: Binding, **rule: object) -> bool:
    return AclAuthorizer(Acls(acls), **rule).allows_any(ALICE, HOST, WRITE, ResourceType.TOPIC)


def test_nothing_is_allowed_by_default() -> None:
    """Neither without ACLs, nor by those of another operation, name, principal, type or host."""
    assert not may(READ, "t")
    assert not may(READ, "t", acl(WRITE, "t"))
    assert not may(READ, "t", acl(READ, "u"))
    assert not may(READ, "t", acl(READ, "t", principal=BOB))
    assert not may(READ, "t", acl(READ, "t", resource_type=ResourceType.GROUP))
    assert not may(READ, "t", acl(READ, "t", host="10.0.0.1"))


@pytest.mark.parametrize(
    "allowing",
    [
        acl(READ, "orders"),
        acl(READ, "*"),
        acl(READ, "or", prefixed=True),
        acl(READ, "orders", prefixed=True),
        acl(ALL, "orders"),
        acl(READ, "orders", principal="User:*"),
        acl(READ, "orders", host=HOST),
    ],
    ids=str,
)
def test_an_entry_that_fits_allows(allowing: Binding) -> None:
    """By name, wildcard or prefix; for the principal or everyone; from the host or everywhere."""
    assert may(READ, "orders", allowing)


@pytest.mark.parametrize(
    "denying",
    [
        acl(READ, "orders", deny=True),
        acl(READ, "*", deny=True),
        acl(ALL, "or", deny=True, prefixed=True),
        acl(READ, "orders", deny=True, principal="User:*"),
        acl(READ, "orders", deny=True, host=HOST),
    ],
    ids=str,
)
def test_deny_goes_before_allow(denying: Binding) -> None:
    """However specific the entry that allows."""
    assert not may(READ, "orders", acl(READ, "orders"), denying)
    assert may(WRITE, "orders", acl(WRITE, "orders"), acl(READ, "orders", deny=True))


def test_a_prefix_with_an_asterisk_is_no_wildcard() -> None:
    """Only the literal `*` means every resource."""
    assert not may(READ, "orders", acl(READ, "*", prefixed=True))
    assert may(READ, "*x", acl(READ, "*", prefixed=True))


@pytest.mark.parametrize("operation", list(AclOperation))
def test_what_implies_describe(operation: AclOperation) -> None:
    """Reading, writing, deleting and altering show that a thing exists; denying them hides nothing."""
    implying = {"READ", "WRITE", "DELETE", "ALTER", "DESCRIBE", "ALL"}
    assert may(DESCRIBE, "t", acl(operation, "t")) is (operation.name in implying)
    denied = may(DESCRIBE, "t", acl(DESCRIBE, "t"), acl(operation, "t", deny=True))
    assert denied is (operation.name not in {"DESCRIBE", "ALL"})
    configs = {"DESCRIBE_CONFIGS", "ALTER_CONFIGS", "ALL"}
    describe_configs = AclOperation.DESCRIBE_CONFIGS
    assert may(describe_configs, "t", acl(operation, "t")) is (operation.name in configs)


def test_a_super_user_may_do_everything() -> None:
    """Compared whole, and before any ACL."""
    deny = acl(ALL, "*", deny=True, principal="User:*")
    assert may(READ, "t", deny, super_users=frozenset({ALICE}))
    assert not may(READ, "t", deny, super_users=frozenset({"User:ali"}))
    assert may_any(deny, super_users=frozenset({ALICE}))


def test_a_resource_without_any_acl_may_be_open_to_everyone() -> None:
    """An ACL of someone else closes it, and so does one for another operation or every name."""
    opened = {"allow_everyone_if_no_acl_found": True}
    assert may(READ, "t", acl(READ, "u", principal=BOB), **opened)
    for closing in (
        acl(READ, "t", principal=BOB),
        acl(WRITE, "t"),
        acl(READ, "*", principal=BOB),
        acl(READ, "", prefixed=True, principal=BOB),
    ):
        assert not may(READ, "t", closing, **opened)


@pytest.mark.parametrize(
    ("acls", "expected"),
    [
        ((), False),
        ((acl(WRITE, "t"),), True),
        ((acl(READ, "t"),), False),
        ((acl(ALL, "t"),), True),
        ((acl(WRITE, "t", principal=BOB),), False),
        ((acl(WRITE, "or", prefixed=True), acl(WRITE, "orders", deny=True)), True),
        ((acl(WRITE, "orders"), acl(WRITE, "or", deny=True, prefixed=True)), False),
        ((acl(WRITE, "orders"), acl(WRITE, "orders", deny=True)), False),
        ((acl(WRITE, "orders"), acl(WRITE, "orders.", deny=True, prefixed=True)), True),
        (
            (
                acl(WRITE, "orders", prefixed=True),
                acl(WRITE, "orders", deny=True, prefixed=True),
            ),
            False,
        ),
        ((acl(WRITE, "*"), acl(WRITE, "or", deny=True, prefixed=True)), True),
        ((acl(WRITE, "t"), acl(WRITE, "*", deny=True)), False),
        ((acl(WRITE, "t"), acl(WRITE, "*", deny=True, principal=BOB)), True),
    ],
    ids=str,
)
def test_any_resource_of_a_type(acls: tuple[Binding, ...], expected: bool) -> None:
    """Some name must be allowed that no denial covers in whole."""
    assert may_any(*acls) is expected


def test_any_resource_if_everyone_is_allowed_without_acls() -> None:
    """Only the denial of every name counts then: some topic has no ACL."""
    opened = {"allow_everyone_if_no_acl_found": True}
    assert may_any(acl(WRITE, "t", deny=True), **opened)
    assert not may_any(acl(WRITE, "*", deny=True), **opened)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("::1", "0:0:0:0:0:0:0:1"),
        ("[::1]", "0:0:0:0:0:0:0:1"),
        ("2001:db8::5", "2001:db8:0:0:0:0:0:5"),
        ("2001:0DB8:0:0:0:0:0:0005", "2001:db8:0:0:0:0:0:5"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("fe80::1%eth0", "fe80:0:0:0:0:0:0:1%eth0"),
        ("10.0.0.1", "10.0.0.1"),
        ("*", "*"),
        ("localhost", "localhost"),
        ("10.0.0.0/8", "10.0.0.0/8"),
    ],
)
def test_hosts_are_written_as_java_writes_them(text: str, expected: str) -> None:
    """Kafka compares text, and Java does not compress IPv6."""
    assert java_host(text) == java_host(expected) == expected


# Against a naive model

NAMES = st.text(alphabet="ab*", min_size=1, max_size=3)
BINDINGS = st.builds(
    acl,
    st.sampled_from([READ, WRITE, ALL, DESCRIBE, AclOperation.DELETE]),
    NAMES,
    deny=st.booleans(),
    prefixed=st.booleans(),
    principal=st.sampled_from([ALICE, BOB, "User:*"]),
    host=st.sampled_from(["*", HOST, "10.0.0.1"]),
    resource_type=st.sampled_from([ResourceType.TOPIC, ResourceType.GROUP]),
)


def model(acls: list[Binding], operation: AclOperation, name: str, *, everyone: bool) -> bool:
    """The rule, read from its description: filter, deny, allow."""
    covering = [
        entry
        for pattern, entry in acls
        if pattern.resource_type is ResourceType.TOPIC
        and (
            name.startswith(pattern.name)
            if pattern.pattern_type is PatternType.PREFIXED
            else pattern.name in (name, "*")
        )
    ]
    if not covering:
        return everyone
    mine = [e for e in covering if e.principal in (ALICE, "User:*") and e.host in (HOST, "*")]
    if any(e.permission is Permission.DENY and e.operation in (operation, ALL) for e in mine):
        return False
    allowing = {operation, ALL}
    if operation is DESCRIBE:
        allowing |= {READ, WRITE, AclOperation.DELETE, AclOperation.ALTER}
    return any(e.permission is Permission.ALLOW and e.operation in allowing for e in mine)


@given(
    acls=st.lists(BINDINGS, max_size=8),
    operation=st.sampled_from([READ, WRITE, DESCRIBE]),
    name=NAMES,
    everyone=st.booleans(),
)
def test_the_rule_is_the_model(
    acls: list[Binding], operation: AclOperation, name: str, everyone: bool
) -> None:
    """Any ACLs, any question."""
    expected = model(acls, operation, name, everyone=everyone)
    assert may(operation, name, *acls, allow_everyone_if_no_acl_found=everyone) is expected


@given(acls=st.lists(BINDINGS, max_size=6), suffix=st.text(alphabet="ab", max_size=2))
def test_any_resource_agrees_with_the_resources(acls: list[Binding], suffix: str) -> None:
    """If no topic is allowed at all, whatever its name, none is found; a name allowed alone is."""
    allowed = {pattern.name + suffix for pattern, _ in acls} | {"zz"}
    if any(may(WRITE, name, *acls) for name in allowed):
        denies_all = any(
            pattern.name == "*"
            and pattern.pattern_type is PatternType.LITERAL
            and pattern.resource_type is ResourceType.TOPIC
            and entry.permission is Permission.DENY
            and entry.operation in {WRITE, ALL}
            and entry.principal in {ALICE, "User:*"}
            and entry.host in {HOST, "*"}
            for pattern, entry in acls
        )
        assert not denies_all
        assert may_any(*acls)


@given(before=st.lists(BINDINGS, max_size=8), removed=st.sets(st.integers(0, 7)), name=NAMES)
def test_acls_that_were_removed_are_as_if_they_had_never_been(
    before: list[Binding], removed: set[int], name: str
) -> None:
    """Removing one of several leaves the others in force (CVE-2024-27309)."""
    acls = Acls(before)
    kept = [one for index, one in enumerate(before) if index not in removed]
    for pattern in acls.patterns():
        acls.put(pattern, frozenset(entry for other, entry in kept if other == pattern))
    assert set(acls) == set(kept)
    for operation in (READ, WRITE, DESCRIBE):
        told = AclAuthorizer(acls).allows(ALICE, HOST, operation, ResourceType.TOPIC, name)
        assert told is may(operation, name, *kept)


# Filters


def test_a_filter_leaves_open_what_it_does_not_name() -> None:
    """An empty one matches everything; each field narrows it down."""
    one = acl(READ, "orders", host="::1")
    one = Binding(one.pattern, one.entry._replace(host=java_host("::1")))
    assert BindingFilter().matches(one)
    for field, right, wrong in (
        ("resource_type", ResourceType.TOPIC, ResourceType.GROUP),
        ("name", "orders", "order"),
        ("pattern_type", PatternType.LITERAL, PatternType.PREFIXED),
        ("principal", ALICE, BOB),
        ("host", "0:0:0:0:0:0:0:1", "*"),
        ("operation", READ, WRITE),
        ("permission", Permission.ALLOW, Permission.DENY),
    ):
        assert BindingFilter(**{field: right}).matches(one)
        assert not BindingFilter(**{field: wrong}).matches(one)


def test_match_finds_every_pattern_that_covers_a_name() -> None:
    """The literal, the wildcard and the prefixes; ANY only those of exactly this name."""
    bindings = [
        acl(READ, "orders"),
        acl(READ, "*"),
        acl(READ, "or", prefixed=True),
        acl(READ, "orders", prefixed=True),
        acl(READ, "orders.x", prefixed=True),
        acl(READ, "other"),
    ]
    match = BindingFilter(name="orders", pattern_type=MATCH)
    assert [match.matches(one) for one in bindings] == [True, True, True, True, False, False]
    exact = BindingFilter(name="orders", pattern_type=ANY)
    assert [exact.matches(one) for one in bindings] == [True, False, False, True, False, False]
