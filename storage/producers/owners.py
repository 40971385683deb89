"""The producers of one partition by owner, so that the owner of most of them loses one first.

An owner is the tag in a producer id (`protocol/bound_ids.py`). All methods take constant time, but for `next_to_go` when
owners with equally many ids are compared. Called by `state.py`.
"""

from __future__ import annotations

from collections import OrderedDict

from echoless.protocol.bound_ids import tag_of


class Owners:
    """The ids of each owner, oldest append first."""

    def __init__(self) -> None:
        self._ids: dict[int, OrderedDict[int, None]] = {}
        self._by_count: dict[int, set[int]] = {}
        self._most = 0
        """Number of ids of the owners that have most."""

    def put(self, producer_id: int) -> None:
        """Notes an append."""
        owner = tag_of(producer_id)
        ids = self._ids.setdefault(owner, OrderedDict())
        if producer_id in ids:
            ids.move_to_end(producer_id)
            return
        ids[producer_id] = None
        self._count(owner, len(ids) - 1, len(ids))

    def forget(self, producer_id: int) -> None:
        """Forgets the id, which has to be known."""
        owner = tag_of(producer_id)
        ids = self._ids[owner]
        del ids[producer_id]
        self._count(owner, len(ids) + 1, len(ids))
        if not ids:
            del self._ids[owner]

    def clear(self) -> None:
        """Forgets everything."""
        self._ids.clear()
        self._by_count.clear()
        self._most = 0

    def next_to_go(self, oldest_id: int) -> int:
        """The oldest id of an owner with most; `oldest_id`, the oldest of all, if that is such a one."""
        largest = self._by_count[self._most]
        if tag_of(oldest_id) in largest:
            return oldest_id
        return next(iter(self._ids[min(largest)]))

    def _count(self, owner: int, before: int, now: int) -> None:
        if before:
            self._by_count[before].discard(owner)
            if not self._by_count[before]:
                del self._by_count[before]
        if now:
            self._by_count.setdefault(now, set()).add(owner)
        if now > self._most or self._most not in self._by_count:
            self._most = now
