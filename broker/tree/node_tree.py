"""The one coordination interface: a tree of versioned nodes, modelled on ZooKeeper.

`embedded.py` implements it for one broker, `tests/fakes/fake_node_tree.py` in memory for many,
`zookeeper.py` for a cluster; `tests/contracts/node_tree.py` is the contract that all of them keep.
Everything above (producer-id blocks, topics, partition states, registration) is written once, over
this interface, and every change of it is a conditional write.

A node has a path (`/a/b`), data, a version, and children; the root `/` always exists. A new node has
version 0, and every write adds 1. An ephemeral node lives as long as the session that created it and
has no children. All calls raise `ConnectionLostError` while there is no session; on a change it means
*outcome unknown*: the caller finds out by reading (`lost_replies.py`), or does not need to know
(`producer_ids.py`).

Knows nothing of what is kept in the tree.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, NamedTuple, Protocol

ANY_VERSION: Final = -1
"""An expected version that matches any, as long as the node exists."""

ROOT: Final = "/"
_PATH: Final = re.compile(r"/|(/(?!\.{1,2}(/|\Z))[^/\0]+)+")
NO_OWNER: Final = 0


class Node(NamedTuple):
    """A node, as one read returns it."""

    data: bytes
    version: int
    owner: int = NO_OWNER
    """The session of an ephemeral node; 0 for a persistent one."""


class Create(NamedTuple):
    """A new node; its parent must exist."""

    path: str
    data: bytes = b""
    ephemeral: bool = False


class SetData(NamedTuple):
    """New data, if the node has this version."""

    path: str
    data: bytes
    version: int


class Delete(NamedTuple):
    """The node's end, if it has this version and no children."""

    path: str
    version: int = ANY_VERSION


class Check(NamedTuple):
    """No change; the whole operation fails unless the node has this version."""

    path: str
    version: int


Operation = Create | SetData | Delete | Check


class CoordinationError(Exception):
    """Something the tree refuses or cannot do."""


class NodeError(CoordinationError):
    """The tree refuses an operation on one node, and has changed nothing."""

    def __init__(self, path: str, message: str) -> None:
        super().__init__(f"{path}: {message}")
        self.path = path


class NoNodeError(NodeError):
    """The node, or the parent of the one to be created, does not exist."""


class NodeExistsError(NodeError):
    """The node to be created is there already."""


class BadVersionError(NodeError):
    """The node has been written since its version was read: a lost race."""


class NotEmptyError(NodeError):
    """The node to be deleted has children."""


class EphemeralParentError(NodeError):
    """An ephemeral node cannot have children."""


class MultiFailedError(CoordinationError):
    """An atomic operation was refused as a whole: `cause` is what its operation `index` ran into."""

    def __init__(self, index: int, cause: NodeError) -> None:
        super().__init__(f"operation {index} of the multi-operation: {cause}")
        self.index = index
        self.cause = cause


class ConnectionLostError(CoordinationError):
    """No answer came. A read has failed; a change may or may not have been made."""


class SessionState(enum.Enum):
    """The client's knowledge of its session.

    SUSPENDED: the connection is lost, but the session and its ephemeral nodes may still exist. LOST:
    they are gone, and everything read before is void. CONNECTED after LOST is a new session.
    """

    CONNECTED = "connected"
    SUSPENDED = "suspended"
    LOST = "lost"


WatchCallback = Callable[[str], None]
SessionCallback = Callable[[SessionState], None]
Cancel = Callable[[], None]


class NodeTree(Protocol):
    """One client's view of the tree, bound to its session. All calls come from one event loop.

    Watches stay until cancelled. After `await watch(...)` has returned, every later change is followed
    by at least one call with the watched path; several changes may share a call, and a call may come
    without a change (after a reconnection there always is one). So: watch first, then read, and read
    again at each call. Callbacks run on the event loop, after the change can be read, and must not
    block or raise.
    """

    @property
    def session_id(self) -> int:
        """The `Node.owner` of ephemeral nodes that this client created; never 0."""

    @property
    def session_state(self) -> SessionState: ...

    @property
    def session_problem(self) -> str:
        """Why there is no connection, for an operator; meaningless while there is one."""

    @property
    def old_copy(self) -> str:
        """The proof that the server holds an older copy of the tree than this client has seen; else empty.

        Such a session stays lost: what the older tree lacks must not be taken for deleted.
        """

    @property
    def session_timeout_s(self) -> float:
        """The negotiated timeout: how long the session survives silence; infinite if it needs no heartbeats."""

    @property
    def session_asked_at(self) -> float:
        """When this session was asked for, in the loop's time; its timeout began later."""

    async def read(self, path: str) -> Node:
        """Raises `NoNodeError`."""

    async def read_many(self, paths: Sequence[str]) -> list[Node | None]:
        """Reads one node per path (None: no such node), in one go; not a snapshot of one moment."""

    async def children(self, path: str) -> list[str]:
        """The names (not paths) of the children, sorted. Raises `NoNodeError`."""

    async def create(self, path: str, data: bytes = b"", *, ephemeral: bool = False) -> None:
        """Raises `NodeExistsError`, `NoNodeError` (no parent), `EphemeralParentError`."""

    async def create_sequential(self, prefix: str, data: bytes = b"") -> str:
        """Creates a persistent node called `prefix` and ten digits, and returns its path.

        The number is larger than any that the parent has among its children, or has given since it
        was created or the tree was opened. A lost answer leaves a node that its creator cannot name.
        Raises `NoNodeError` (no parent), `EphemeralParentError`.
        """

    async def write(self, path: str, data: bytes, version: int) -> int:
        """Writes and returns the new version. Raises `NoNodeError`, `BadVersionError`."""

    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        """Raises `NoNodeError`, `BadVersionError`, `NotEmptyError`."""

    async def multi(self, operations: Sequence[Operation]) -> None:
        """Makes all changes in order, or none. Raises `MultiFailedError`."""

    async def watch(self, path: str, callback: WatchCallback) -> Cancel:
        """Watches the node's existence and data; it need not exist yet."""

    async def watch_children(self, path: str, callback: WatchCallback) -> Cancel:
        """Watches the set of the node's children, and its existence; it need not exist yet."""

    def on_session(self, callback: SessionCallback) -> Cancel:
        """Calls back at every change of `session_state`, in order."""

    def expire_session(self) -> None:
        """Ends the session as its timeout would, on both sides: a fault. Returns at once."""

    async def close(self) -> None:
        """Ends the session, and with it its ephemeral nodes. The tree cannot be used afterwards."""


def parent_of(path: str) -> str:
    """The path of the node above; the root is its own parent."""
    return path.rpartition("/")[0] or ROOT


def check_path(path: str) -> None:
    """Raises `ValueError` unless `path` is absolute and plain (no empty part, no `.` or `..`)."""
    if not _PATH.fullmatch(path):
        raise ValueError(f"{path!r} is not the path of a node")


async def ensure_paths(tree: NodeTree, paths: Iterable[str]) -> None:
    """Creates these nodes and what is missing above them, as empty persistent nodes."""
    wanted = sorted({ancestor for path in paths for ancestor in _with_ancestors(path)})
    while missing := [
        path
        for path, node in zip(wanted, await tree.read_many(wanted), strict=True)
        if node is None
    ]:
        try:
            await tree.multi([Create(path) for path in missing])
        except ConnectionLostError:
            continue  # reading again shows what was made, or fails
        except MultiFailedError as error:
            # Another client has created one of them meanwhile; each round leaves fewer to create.
            if not isinstance(error.cause, NodeExistsError):
                raise


def _with_ancestors(path: str) -> Iterator[str]:
    while path != ROOT:
        yield path
        path = parent_of(path)
