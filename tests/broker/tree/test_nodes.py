"""The in-memory nodes against a naive twin: a dictionary that is copied before every operation."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from echoless.broker.tree.node_tree import (
    ANY_VERSION,
    NO_OWNER,
    ROOT,
    Check,
    Create,
    Delete,
    MultiFailedError,
    Node,
    Operation,
    SetData,
    parent_of,
)
from echoless.broker.tree.nodes import Nodes

SESSION_ID = 5
Twin = dict[str, Node]

# Few paths and versions, so that operations meet.
names = st.sampled_from(["a", "b"])
paths = st.lists(names, min_size=1, max_size=3).map(lambda parts: "/" + "/".join(parts))
versions = st.integers(ANY_VERSION, 2)
operations = st.one_of(
    st.builds(Create, paths, st.binary(max_size=1), st.booleans()),
    st.builds(SetData, paths, st.binary(max_size=1), versions),
    st.builds(Delete, paths, versions),
    st.builds(Check, paths, versions),
)


def allowed(twin: Twin, operation: Operation) -> bool:
    """The rules, written once more and without any cleverness."""
    node = twin.get(operation.path)
    if isinstance(operation, Create):
        parent = twin.get(parent_of(operation.path))
        return node is None and parent is not None and parent.owner == NO_OWNER
    if node is None or operation.version not in (node.version, ANY_VERSION):
        return False
    has_children = any(path.startswith(f"{operation.path}/") for path in twin)
    return not (isinstance(operation, Delete) and has_children)


def applied(twin: Twin, operation: Operation) -> Twin:
    """A copy with the operation done."""
    after = dict(twin)
    match operation:
        case Create(path, data, ephemeral):
            after[path] = Node(data, 0, SESSION_ID if ephemeral else NO_OWNER)
        case SetData(path, data, _):
            after[path] = Node(data, twin[path].version + 1, twin[path].owner)
        case Delete(path):
            del after[path]
    return after


def assert_equal(nodes: Nodes, twin: Twin) -> None:
    """Same nodes, same children, same owners."""
    for path in ["/a", "/b", *(f"/{x}/{y}" for x in "ab" for y in "ab"), *twin]:
        assert nodes.get(path) == twin.get(path)
    for path in twin:
        below = [other for other in twin if other != ROOT and parent_of(other) == path]
        assert nodes.children(path) == sorted(other.rpartition("/")[2] for other in below)
        assert nodes.child_count(path) == len(below)
    owned = {path for path, node in twin.items() if node.owner == SESSION_ID}
    assert set(nodes.owned_by(SESSION_ID)) == owned


@given(st.lists(st.lists(operations, min_size=1, max_size=4), max_size=12))
@settings(max_examples=60, deadline=None)
def test_multi_operations_do_what_the_twin_does(program: list[list[Operation]]) -> None:
    """All or nothing, the first operation at fault named, each one judged after those before it."""
    nodes = Nodes()
    twin: Twin = {ROOT: Node(b"", 0)}
    for multi in program:
        attempt = twin
        fault = None
        for index, operation in enumerate(multi):
            if not allowed(attempt, operation):
                fault = index
                break
            attempt = applied(attempt, operation)
        try:
            nodes.publish(nodes.plan_multi(multi, SESSION_ID))
        except MultiFailedError as error:
            assert error.index == fault  # noqa: PT017 - not every multi-operation fails
        else:
            assert fault is None
            twin = attempt
    assert_equal(nodes, twin)
