"""The bounds on what clients can make the coordinators of a broker hold.

A sharer (`broker/network/sharer.py`) may have as much of each bound as is free, so one alone has half of it at most, and a
least share in any case: whoever holds much is refused more, and never the others.
"""

from __future__ import annotations

from collections.abc import Callable

from echoless.coordinators.groups.classic.member import Protocols, protocol_bytes
from echoless.coordinators.groups.config import GroupCoordinatorConfig
from echoless.coordinators.groups.group import Group
from echoless.coordinators.groups.usage import Usage


class GroupBounds:
    """The bounds of `GroupCoordinatorConfig`, beside what all coordinators of a broker hold."""

    def __init__(
        self,
        config: GroupCoordinatorConfig,
        usage: Callable[[], Usage],
        used_by: Callable[[str], Usage],
    ) -> None:
        """`used_by` says what of the usage is one sharer's."""
        self.config = config
        self._usage = usage
        self._used_by = used_by

    def has_room_for_group(self, sharer: str) -> bool:
        """Whether one more group may be held for the sharer; empty: for no one that is known."""
        share, used = self._used_by(sharer).groups, self._usage().groups
        return self._has_room(1, share, used, self.config.groups_max, sharer)

    def has_room_for_member(self, sharer: str) -> bool:
        """Whether one more member may be held."""
        share, used = self._used_by(sharer).members, self._usage().members
        return self._has_room(1, share, used, self.config.members_max, sharer)

    def has_room_for(self, more: int, sharer: str) -> bool:
        """Whether so many more bytes may be held. There is always room for less."""
        if more <= 0:
            return True
        share, used = self._used_by(sharer).size, self._usage().size
        return self._has_room(more, share, used, self.config.bytes_max, sharer)

    def has_room_for_metadata(self, more: int, sharer: str) -> bool:
        """Whether the metadata of offsets may be so many bytes longer. It may always be shorter."""
        if more <= 0:
            return True
        share, used = self._used_by(sharer).metadata, self._usage().metadata
        return self._has_room(more, share, used, self.config.metadata_bytes_max, sharer)

    @property
    def has_too_many_ids(self) -> bool:
        """Whether more ids were handed out than may be at once."""
        return self._usage().ids > self.config.ids_max

    def has_room_for_offsets(self, more: int, sharer: str) -> bool:
        """Whether so many more offsets may be held."""
        if more <= 0:
            return True
        share, used = self._used_by(sharer).offsets, self._usage().offsets
        return self._has_room(more, share, used, self.config.offsets_max, sharer)

    def _has_room(self, more: int, share: int, used: int, most: int, sharer: str) -> bool:
        least = most // self.config.least_share if sharer else 0
        return share + more <= max(most - used, least)

    def has_room_in(self, group: Group, sharer: str) -> bool:
        """Whether a classic group may hold one more member, or id.

        While members of the last generation are missing there may be twice as many as the group's size.
        """
        return (
            self.has_room_for_member(sharer)
            and len(group.pending_members) < self.config.group_max_size
            and len(group.members) < 2 * self.config.group_max_size
        )

    def has_room_for_protocols(
        self, group: Group, protocols: Protocols, sharer: str, instead_of: Protocols = ()
    ) -> bool:
        """Whether a classic group may hold the protocols of a member."""
        more = protocol_bytes(protocols) - protocol_bytes(instead_of)
        return more <= 0 or self.has_room_for_assignments(group, more, sharer)

    def has_room_for_assignments(self, group: Group, size: int, sharer: str) -> bool:
        """Whether a classic group may hold so many bytes besides its protocols."""
        return group.protocol_bytes + size <= self.config.group_bytes_max and self.has_room_for(
            size, sharer
        )
