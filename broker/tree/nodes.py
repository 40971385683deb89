"""The nodes in memory: which operations are allowed, and what they change.

Two steps, so that nothing is visible before it is durable: `plan` judges operations against the nodes
as they are and returns the changes they make; `publish` makes these visible. Between the two the
caller writes them to disk; it must not plan anything else meanwhile.

Invariant: every node but the root has a parent here, and no ephemeral node has children.

Knows nothing of sessions (only their ids), files and event loops. Used by the embedded tree and by
the in-memory one of the tests.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from echoless.broker.tree.node_tree import (
    ANY_VERSION,
    NO_OWNER,
    ROOT,
    BadVersionError,
    Check,
    Create,
    Delete,
    EphemeralParentError,
    MultiFailedError,
    Node,
    NodeError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    Operation,
    SetData,
    check_path,
    parent_of,
)

SEQUENCE_DIGITS: Final = 10
"""Digits at the end of a sequential node's name, as in ZooKeeper."""


class Change(NamedTuple):
    """A node's new value; None if it is deleted."""

    path: str
    node: Node | None


class Nodes:
    """All nodes of one tree."""

    def __init__(self, nodes: Iterable[tuple[str, Node]] = ()) -> None:
        self._nodes: dict[str, Node] = {ROOT: Node(b"", 0)}
        self._children: dict[str, set[str]] = {}
        self._next_numbers: dict[str, int] = {}
        """The next number for a sequential child, by parent; it has to grow only while anyone may
        remember an older one, so it is not kept on disk but follows from the children at an open."""
        self.publish([Change(path, node) for path, node in nodes])

    def get(self, path: str) -> Node | None:
        """The node, or None if it does not exist."""
        check_path(path)
        return self._nodes.get(path)

    def read(self, path: str) -> Node:
        """Raises `NoNodeError`."""
        node = self.get(path)
        if node is None:
            raise NoNodeError(path, "no such node")
        return node

    def children(self, path: str) -> list[str]:
        """The names of the children, sorted. Raises `NoNodeError`."""
        self.read(path)
        return sorted(self._children.get(path, ()))

    def child_count(self, path: str) -> int:
        """The number of the node's children; 0 if it does not exist."""
        return len(self._children.get(path, ()))

    def owned_by(self, session_id: int) -> list[str]:
        """The paths of a session's ephemeral nodes."""
        return [path for path, node in self._nodes.items() if node.owner == session_id]

    def plan(self, operation: Operation, session_id: int) -> list[Change]:
        """The change of a single operation (none for a check). Raises the `NodeError` at fault."""
        plan = _Plan(self, session_id)
        plan.add(operation)
        return plan.changes()

    def plan_sequential(self, prefix: str, data: bytes, session_id: int) -> list[Change]:
        """The change that creates the next sequential child. Raises the `NodeError` at fault."""
        number = self._next_numbers.get(parent_of(prefix), 0)
        return self.plan(Create(f"{prefix}{number:010d}", data), session_id)

    def plan_multi(self, operations: Sequence[Operation], session_id: int) -> list[Change]:
        """The changes of all operations together. Raises `MultiFailedError`."""
        plan = _Plan(self, session_id)
        for index, operation in enumerate(operations):
            try:
                plan.add(operation)
            except NodeError as error:
                raise MultiFailedError(index, error) from error
        return plan.changes()

    def publish(self, changes: Iterable[Change]) -> None:
        """Makes planned changes visible."""
        for path, node in changes:
            if node is None:
                del self._nodes[path]
                self._next_numbers.pop(path, None)
                self._remove_child(path)
            else:
                self._nodes[path] = node
                if path != ROOT:
                    self._add_child(path)

    def _add_child(self, path: str) -> None:
        parent = parent_of(path)
        self._children.setdefault(parent, set()).add(_name_of(path))
        digits = path[-SEQUENCE_DIGITS:]
        if digits.isascii() and digits.isdigit():
            self._next_numbers[parent] = max(self._next_numbers.get(parent, 0), int(digits) + 1)

    def _remove_child(self, path: str) -> None:
        siblings = self._children[parent_of(path)]
        siblings.remove(_name_of(path))
        if not siblings:
            del self._children[parent_of(path)]


def _name_of(path: str) -> str:
    return path.rpartition("/")[2]


@dataclass(slots=True, repr=False, eq=False)
class _Plan:
    """The nodes as they will be after the operations so far, as differences from `nodes`."""

    nodes: Nodes
    session_id: int
    after: dict[str, Node | None] = field(default_factory=dict)
    child_count_deltas: dict[str, int] = field(default_factory=dict)

    def changes(self) -> list[Change]:
        return [
            Change(path, node)
            for path, node in self.after.items()
            if node is not None or self.nodes.get(path) is not None
        ]

    def add(self, operation: Operation) -> None:
        check_path(operation.path)
        match operation:
            case Create():
                self._create(operation)
            case SetData(path, data, version):
                node = self._expect(path, version)
                self.after[path] = node._replace(data=data, version=node.version + 1)
            case Delete(path, version):
                self._delete(path, version)
            case Check(path, version):
                self._expect(path, version)

    def _get(self, path: str) -> Node | None:
        if path in self.after:
            return self.after[path]
        return self.nodes.get(path)

    def _expect(self, path: str, version: int) -> Node:
        node = self._get(path)
        if node is None:
            raise NoNodeError(path, "no such node")
        if version not in {node.version, ANY_VERSION}:
            raise BadVersionError(path, f"has version {node.version}, expected {version}")
        return node

    def _create(self, operation: Create) -> None:
        path = operation.path
        if self._get(path) is not None:
            raise NodeExistsError(path, "exists already")
        parent = self._get(parent_of(path))
        if parent is None:
            raise NoNodeError(path, "its parent does not exist")
        if parent.owner != NO_OWNER:
            raise EphemeralParentError(path, "its parent is ephemeral")
        owner = self.session_id if operation.ephemeral else NO_OWNER
        self._set(path, Node(operation.data, 0, owner), +1)

    def _delete(self, path: str, version: int) -> None:
        self._expect(path, version)
        if path == ROOT:
            raise NotEmptyError(path, "the root cannot be deleted")
        child_count = self.nodes.child_count(path) + self.child_count_deltas.get(path, 0)
        if child_count:
            raise NotEmptyError(path, f"has {child_count} children")
        self._set(path, None, -1)

    def _set(self, path: str, node: Node | None, child_count_delta: int) -> None:
        self.after[path] = node
        parent = parent_of(path)
        deltas = self.child_count_deltas
        deltas[parent] = deltas.get(parent, 0) + child_count_delta
