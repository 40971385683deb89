"""The ids that were handed out to members which have not joined with them yet.

Anyone may ask for ids and never use them, so there is always room for one more: when there are too many, one of
the sharer with the most gives way. A client whose id is not known any longer asks for another one.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from typing import Final, NamedTuple

_LOOKED_AT: Final = 8
"""Groups that are compared for each id that gives way: its cost does not depend on how many there are."""


class _Holder(NamedTuple):
    """A group, and the sharer whose members it is to have."""

    group_id: str
    sharer: str


class HandedOutIds:
    """The ids of one coordinator."""

    def __init__(self) -> None:
        self._ids: OrderedDict[_Holder, dict[str, None]] = OrderedDict()
        """The ones first that were compared longest ago; the ids of each in their order."""
        self._holders: dict[tuple[str, str], _Holder] = {}
        self._counts: Counter[str] = Counter()
        """By sharer."""

    def __len__(self) -> int:
        return len(self._holders)

    def add(self, group_id: str, member_id: str, sharer: str) -> None:
        """Count an id."""
        holder = _Holder(group_id, sharer)
        self._holders[group_id, member_id] = holder
        self._ids.setdefault(holder, {})[member_id] = None
        self._counts[sharer] += 1

    def discard(self, group_id: str, member_id: str) -> None:
        """Count an id no longer."""
        holder = self._holders.pop((group_id, member_id), None)
        if holder is None:
            return
        ids = self._ids[holder]
        del ids[member_id]
        if not ids:
            del self._ids[holder]
        self._counts[holder.sharer] -= 1
        if not self._counts[holder.sharer]:
            del self._counts[holder.sharer]

    def discard_group(self, group_id: str) -> None:
        """Count no id of the group any longer. Takes time in proportion to all ids."""
        for group, member_id in [key for key in self._holders if key[0] == group_id]:
            self.discard(group, member_id)

    def next_to_give_way(self) -> tuple[str, str] | None:
        """The group and the id that gives way: of some groups, the oldest of who has the most."""
        looked_at: list[_Holder] = []
        for _ in range(min(_LOOKED_AT, len(self._ids))):
            holder = next(iter(self._ids))
            self._ids.move_to_end(holder)
            looked_at.append(holder)
        if not looked_at:
            return None
        chosen = max(looked_at, key=lambda one: (self._counts[one.sharer], len(self._ids[one])))
        return chosen.group_id, next(iter(self._ids[chosen]))
