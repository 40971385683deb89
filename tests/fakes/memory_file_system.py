"""A file system in memory that loses power, fails and fills up on command.

Model of durability: a file's bytes are safe after `sync`, a directory's names after
`sync_directory`. Unsynced changes are kept as a list of operations; `after_power_loss` lets a
prefix of each list survive, and of the first lost append a few bytes (a torn write).

Every change on disk is one numbered operation, so that a test can lose power before, or fail, each
of them in turn: `lose_power_at`, `fail_at`, `fail_from`, `capacity_bytes`.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from echoless.protocol.record_batch import Buffer
from echoless.storage.file_system import FileLock, LockHeldError, StorageError

Survival = Callable[[int], int]
"""How many of this number of unsynced operations survive."""


class PowerFailure(Exception):  # noqa: N818 - what happens, not a mistake
    """The machine has stopped; nothing on this file system works until `after_power_loss`."""


def keep_all(count: int) -> int:
    """kill -9: the process died, the machine did not. Unsynced data stays unsynced."""
    return count


def keep_none(_count: int) -> int:
    """The worst power failure: all unsynced data is gone."""
    return 0


class _FileNode:
    def __init__(self, content: bytes = b"") -> None:
        self.content = bytearray(content)
        self.durable = bytes(content)
        self.pending: list[bytes | int] = []
        """Unsynced appends (bytes) and truncations (the new size)."""
        self.has_failed_sync = False
        self.modified_ms = 0

    def append(self, data: bytes) -> None:
        self.content += data
        self.pending.append(data)

    def truncate(self, size: int) -> None:
        if size < len(self.content):
            del self.content[size:]
            self.pending.append(size)
        elif size > len(self.content):
            self.append(bytes(size - len(self.content)))

    def sync(self) -> None:
        self.durable = bytes(self.content)
        self.pending.clear()

    def copy(self, copies: dict[int, _Node]) -> _FileNode:
        """A copy; `copies` maps each node to its own."""
        copy = copies.get(id(self))
        if copy is None:
            copy = copies[id(self)] = _FileNode()
            copy.content, copy.durable = bytearray(self.content), self.durable
            copy.pending = list(self.pending)
            copy.modified_ms = self.modified_ms
        assert isinstance(copy, _FileNode)
        return copy

    def surviving(self, survive: Survival, rng: random.Random) -> _FileNode:
        content = bytearray(self.durable)
        kept = survive(len(self.pending))
        for operation in self.pending[:kept]:
            _apply(content, operation)
        if kept < len(self.pending) and survive is not keep_none:
            lost = self.pending[kept]
            if isinstance(lost, bytes):
                content += lost[: rng.randrange(len(lost) + 1)]
        return _FileNode(bytes(content))


def _apply(content: bytearray, operation: bytes | int) -> None:
    if isinstance(operation, int):
        del content[operation:]
    else:
        content += operation


class _DirectoryNode:
    def __init__(self) -> None:
        self.entries: dict[str, _Node] = {}
        self.durable: dict[str, _Node] = {}
        self.pending: list[dict[str, _Node | None]] = []
        """Unsynced changes, each all or nothing: a name is set to a node, or (None) removed."""

    def change(self, names: dict[str, _Node | None]) -> None:
        _change(self.entries, names)
        self.pending.append(names)

    def sync(self) -> None:
        self.durable = dict(self.entries)
        self.pending.clear()

    def copy(self, copies: dict[int, _Node]) -> _DirectoryNode:
        copy = copies.get(id(self))
        if copy is None:
            copy = copies[id(self)] = _DirectoryNode()
            copy.entries = _copy_names(self.entries, copies)
            copy.durable = _copy_names(self.durable, copies)
            copy.pending = [
                {name: node and node.copy(copies) for name, node in names.items()}
                for names in self.pending
            ]
        assert isinstance(copy, _DirectoryNode)
        return copy

    def surviving(self, survive: Survival, rng: random.Random) -> _DirectoryNode:
        entries = dict(self.durable)
        for names in self.pending[: survive(len(self.pending))]:
            _change(entries, names)
        survivor = _DirectoryNode()
        survivor.entries = {
            name: node.surviving(survive, rng) for name, node in sorted(entries.items())
        }
        survivor.durable = dict(survivor.entries)
        return survivor


_Node = _FileNode | _DirectoryNode


def _copy_names(names: dict[str, _Node], copies: dict[int, _Node]) -> dict[str, _Node]:
    return {name: node.copy(copies) for name, node in names.items()}


def _change(
    entries: dict[str, _Node],
    names: dict[str, _Node | None],
) -> None:
    for name, node in names.items():
        if node is None:
            entries.pop(name, None)
        else:
            entries[name] = node


class MemoryFileSystem:
    """`FileSystem` in memory. Faults are set by assigning the attributes below."""

    def __init__(self, root: _DirectoryNode | None = None) -> None:
        self._root = root or _DirectoryNode()
        self._locks: dict[str, str] = {}
        self._boots = 1
        self._is_off = False
        self.operations = 0
        """Changes on disk so far, including failed ones."""
        self.lose_power_at: int | None = None
        """The number of the operation instead of which the power fails."""
        self.fail_at: int | None = None
        """The number of the operation that fails; one number, one failure."""
        self.fail_from: int | None = None
        """The number of the operation from which on all fail."""
        self.capacity_bytes: int | None = None
        """Total size of all files above which appends fail, half written."""
        self.files_max = 2**31
        """How many files can be opened at once, for the callers that ask."""
        self.now_ms = 0
        """The modification time of changed files."""

    def after_power_loss(self, survive: Survival = keep_none, seed: int = 0) -> MemoryFileSystem:
        """The file system at the next start: synced names and bytes, and some of the others."""
        if survive is keep_all:
            survivor = MemoryFileSystem(self._root.copy({}))
            survivor._boots = self._boots
        else:
            survivor = MemoryFileSystem(self._root.surviving(survive, random.Random(seed)))
            survivor._boots = self._boots + 1
        return survivor

    def used_bytes(self) -> int:
        return _size_of(self._root)

    def operate(self, path: str, verb: str) -> None:
        """Counts one change on disk, or fails it as configured."""
        number = self.operations
        self.check_power()
        if number == self.lose_power_at:
            self._is_off = True
            raise PowerFailure(f"operation {number}: {verb} {path}")
        self.operations += 1
        if number == self.fail_at or (self.fail_from is not None and number >= self.fail_from):
            raise StorageError(path, f"cannot {verb}: failure ordered for operation {number}")

    def check_power(self) -> None:
        """Raises if the power is off."""
        if self._is_off:
            raise PowerFailure("the power is off")

    def open(self, path: str, *, create: bool = False) -> MemoryFile:
        node = self._find(path)
        if node is None and create:
            self.operate(path, "create")
            node = _FileNode()
            self._parent(path).change({_name(path): node})
        if not isinstance(node, _FileNode):
            raise StorageError(path, "cannot open: no such file")
        return MemoryFile(self, path, node)

    def exists(self, path: str) -> bool:
        return self._find(path) is not None

    def is_directory(self, path: str) -> bool:
        return isinstance(self._find(path), _DirectoryNode)

    def set_modified_ms(self, path: str, modified_ms: int) -> None:
        self._file(path).modified_ms = modified_ms

    def modified_ms(self, path: str) -> int:
        return self._file(path).modified_ms

    def list_directory(self, path: str) -> list[str]:
        node = self._find(path)
        if not isinstance(node, _DirectoryNode):
            raise StorageError(path, "cannot list: no such directory")
        return sorted(node.entries)

    def make_directory(self, path: str) -> None:
        node = self._root
        for part in _parts(path):
            child = node.entries.get(part)
            if child is None:
                self.operate(path, "create")
                child = _DirectoryNode()
                node.change({part: child})
            if not isinstance(child, _DirectoryNode):
                raise StorageError(path, "cannot create: a file is in the way")
            node = child

    def remove(self, path: str) -> None:
        if isinstance(self._find(path), _FileNode):
            self.operate(path, "remove")
            self._parent(path).change({_name(path): None})

    def rename(self, old: str, new: str) -> None:
        node = self._find(old)
        if node is None:
            raise StorageError(old, "cannot rename: no such file")
        assert self._parent(old) is self._parent(new), "renames stay in one directory"
        self.operate(old, "rename")
        self._parent(old).change({_name(old): None, _name(new): node})

    def remove_tree(self, path: str) -> None:
        if self.exists(path):
            self.operate(path, "remove")
            self._parent(path).change({_name(path): None})

    def sync_directory(self, path: str) -> None:
        node = self._find(path)
        if not isinstance(node, _DirectoryNode):
            raise StorageError(path, "cannot sync: no such directory")
        self.operate(path, "sync")
        node.sync()

    def read_bytes(self, path: str) -> bytes:
        return bytes(self._file(path).content)

    def write_atomic(self, path: str, data: Buffer, *, sync_name: bool = True) -> None:
        temporary = path + ".tmp"
        file = self.open(temporary, create=True)
        file.truncate(0)
        file.append([data])
        file.sync()
        self.rename(temporary, path)
        if sync_name:
            self.sync_directory(path.rpartition("/")[0])

    def can_open(self, count: int) -> bool:
        """Like `FileSystem.can_open`; a test sets `files_max`."""
        return count <= self.files_max

    def boot_id(self) -> str:
        """The same as before if only the process died (`keep_all`)."""
        return f"boot-{self._boots}"

    def lock(self, path: str, owner: str) -> FileLock:
        if path in self._locks:
            raise LockHeldError(path, self._locks[path])
        if not self.exists(path):
            self.open(path, create=True)
        self._locks[path] = f"{owner}, this process"
        return MemoryLock(self._locks, path)

    def _find(self, path: str) -> _Node | None:
        self.check_power()
        node: _Node | None = self._root
        for part in _parts(path):
            node = node.entries.get(part) if isinstance(node, _DirectoryNode) else None
        return node

    def _parent(self, path: str) -> _DirectoryNode:
        node = self._find(path.rpartition("/")[0])
        if not isinstance(node, _DirectoryNode):
            raise StorageError(path, "its directory does not exist")
        return node

    def _file(self, path: str) -> _FileNode:
        node = self._find(path)
        if not isinstance(node, _FileNode):
            raise StorageError(path, "cannot read: no such file")
        return node


class MemoryFile:
    """`File` in memory."""

    def __init__(self, fs: MemoryFileSystem, path: str, node: _FileNode) -> None:
        self.path = path
        self._fs = fs
        self._node = node
        self._size = len(node.content)
        self._is_closed = False

    @property
    def size(self) -> int:
        return self._size

    def append(self, buffers: Sequence[Buffer]) -> int:
        self._check_open()
        data = b"".join(buffers)
        position = self._size
        self._cut_back()
        try:
            self._append(data)
        except StorageError:
            self._node.append(data[: len(data) // 2])  # what a failing disk had already taken
            self._cut_back()
            raise
        self._size += len(data)
        return position

    def _append(self, data: bytes) -> None:
        try:
            self._fs.operate(self.path, "append")
        except PowerFailure:
            self._node.append(data)  # still being written: a survivor may be torn
            raise
        capacity = self._fs.capacity_bytes
        if capacity is not None and self._fs.used_bytes() + len(data) > capacity:
            raise StorageError(self.path, "cannot append: no space left on device")
        self._node.append(data)
        self._node.modified_ms = self._fs.now_ms

    def _cut_back(self) -> None:
        if len(self._node.content) > self._size:
            self._node.truncate(self._size)

    def read(self, position: int, size: int) -> bytes:
        self._check_open()
        return bytes(self._node.content[position : min(position + size, self._size)])

    def truncate(self, size: int) -> None:
        self._check_open()
        self._fs.operate(self.path, "truncate")
        self._node.truncate(size)
        self._size = size

    def sync(self) -> None:
        self._check_open()
        if self._node.has_failed_sync:
            raise StorageError(self.path, "an earlier sync failed, its pages may be lost")
        try:
            self._fs.operate(self.path, "sync")
        except StorageError:
            self._node.has_failed_sync = True
            raise
        self._node.sync()

    def close(self) -> None:
        self._is_closed = True

    def _check_open(self) -> None:
        self._fs.check_power()
        assert not self._is_closed, f"{self.path} is closed"


class MemoryLock:
    """`FileLock` in memory."""

    def __init__(self, locks: dict[str, str], path: str) -> None:
        self._locks = locks
        self._path = path

    def release(self) -> None:
        self._locks.pop(self._path, None)


def _parts(path: str) -> list[str]:
    return [part for part in path.split("/") if part]


def _name(path: str) -> str:
    return path.rstrip("/").rpartition("/")[2]


def _size_of(node: _Node) -> int:
    if isinstance(node, _FileNode):
        return len(node.content)
    return sum(map(_size_of, node.entries.values()))
