"""The counts that this broker has seen in the coordinator's tree, kept in its data directory: they tell an older copy.

Two counts are noted, durably (`producer-id-checkpoint`): the end of the newest block of producer ids, whoever claimed
it, and this broker's own mark (`tree_mark.py`), which it raises whenever it notes anything: a block, or leader
epochs. They are compared with the tree at each start, when a session begins anew or a connection comes back, and
with each claim of a block.

Invariant: what is noted was in the tree before. So a tree that holds less is not the one it was read from, or
an older copy of it.

Called by `producer_ids.py` and `broker/cluster/tree_watch.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, NamedTuple

from echoless.broker.metadata.old_copy import LAG_CHECKS_MAX, LAG_PAUSE_S, REMEDY, OldCopyError
from echoless.broker.metadata.producer_id_block import NO_ID, PATH, last_id_of
from echoless.broker.metadata.tree_mark import (
    MARKS,
    mark_of,
    mark_operation,
    mark_path,
)
from echoless.broker.tree.node_tree import (
    MultiFailedError,
    Node,
    NodeTree,
    Operation,
    ensure_paths,
)
from echoless.storage.producer_id_checkpoint import SeenCounts

LOST_RACES_MAX: Final = 10
"""In one round; each means that this broker's mark was raised by its other task."""

Save = Callable[[SeenCounts], Awaitable[None]]


class TreeReading(NamedTuple):
    """The nodes of one reading, for changes that depend on them."""

    block: Node | None
    mark: Node | None


async def _forget(_seen: SeenCounts) -> None:
    """Does nothing: no data directory exists."""


class SeenTree:
    """The counts of one broker. Used from one event loop."""

    def __init__(
        self,
        tree: NodeTree,
        broker_id: int,
        seen: SeenCounts | None = None,
        *,
        save: Save = _forget,
        is_marked: bool = False,
    ) -> None:
        """`save` notes the counts durably, or raises `CoordinationError`; `is_marked`: other brokers share the tree."""
        self._tree = tree
        self._broker_id = broker_id
        self._seen = SeenCounts() if seen is None else seen
        self._saved = self._seen
        self._save = save
        self._is_marked = is_marked
        self._turn = asyncio.Lock()
        """Held while the counts are saved."""

    @property
    def last_id(self) -> int:
        """The last id of the newest block that was seen; never moves back."""
        return self._seen.last_id

    @property
    def saved_last_id(self) -> int:
        """The same, as far as it is on the disk."""
        return self._saved.last_id

    async def read(self) -> TreeReading:
        """Reads the nodes. Raises `OldCopyError` if they are older than what was seen, `CoordinationError`.

        What is noted while the nodes are read may be newer than they are.
        """
        before = self._seen
        if not self._is_marked:
            reading = TreeReading((await self._tree.read_many([PATH]))[0], None)
        else:
            reading = TreeReading(*await self._tree.read_many([PATH, mark_path(self._broker_id)]))
        self._check(reading, before)
        return reading

    async def check(self) -> None:
        """Compares the tree with what was seen, allowing time for a server that lags.

        Raises `OldCopyError`, `CoordinationError`.
        """
        for _ in range(LAG_CHECKS_MAX if self._is_marked else 0):
            try:
                await self.read()
            except OldCopyError:
                await asyncio.sleep(LAG_PAUSE_S)
            else:
                return
        await self.read()

    async def note(self, *, is_new: bool = False) -> None:
        """Notes what the tree has now, after raising the mark; only if something `is_new`, or a block is.

        Raises `OldCopyError`, `CoordinationError`.
        """
        for attempt in range(1, LOST_RACES_MAX + 1):
            reading = await self.read()
            last_id = last_id_of(reading.block)
            if last_id == self._saved.last_id and not is_new:
                return
            try:
                await self._raise_mark(reading)
            except MultiFailedError:
                if attempt == LOST_RACES_MAX:
                    raise
                continue
            await self.noted(reading, last_id)
            return

    async def prepare(self) -> None:
        """Creates the parent of all marks. Raises `CoordinationError`."""
        if self._is_marked:
            await ensure_paths(self._tree, [MARKS])

    def operations(self, reading: TreeReading) -> Sequence[Operation]:
        """The changes that raise the mark, to be made with another one."""
        if not self._is_marked:
            return ()
        return (mark_operation(self._broker_id, reading.mark, self._next_mark(reading)),)

    async def noted(self, reading: TreeReading, last_id: int) -> None:
        """Notes, durably, a block's last id and the mark that `operations` has set. Raises `CoordinationError`."""
        mark = self._next_mark(reading) if self._is_marked else self._seen.mark
        self._seen = SeenCounts(max(last_id, self._seen.last_id), max(mark, self._seen.mark))
        async with self._turn:
            seen = self._seen
            if seen != self._saved and seen.last_id != NO_ID:  # else the first claim saves it
                await self._save(seen)
                self._saved = seen

    async def _raise_mark(self, reading: TreeReading) -> None:
        operations = self.operations(reading)
        if operations:
            await self._tree.multi(operations)

    def _next_mark(self, reading: TreeReading) -> int:
        return mark_of(self._broker_id, reading.mark) + 1

    def _check(self, reading: TreeReading, before: SeenCounts) -> None:
        last_id = last_id_of(reading.block)
        if last_id < before.last_id:
            raise OldCopyError(
                f"{PATH} went back: its last producer id is {last_id} and was {before.last_id}; the "
                f"coordinator's data is an old copy, and would hand ids out again: {REMEDY} DATA_DIR"
            )
        self._seen = self._seen._replace(last_id=max(last_id, self._seen.last_id))
        if not self._is_marked:
            return
        mark = mark_of(self._broker_id, reading.mark)
        if mark < before.mark:
            raise OldCopyError(
                f"{mark_path(self._broker_id)} went back: this broker's mark is {mark} and was "
                f"{before.mark}; the coordinator's data is an old copy that other brokers may have "
                f"changed since: {REMEDY} DATA_DIR"
            )
