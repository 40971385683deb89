"""The bounds on what clients can make the coordinators of a broker hold."""

from __future__ import annotations

from collections.abc import Callable

from echoless.coordinators.groups.classic.member import Protocols, protocol_bytes
from echoless.coordinators.groups.config import GroupCoordinatorConfig
from echoless.coordinators.groups.group import Group
from echoless.coordinators.groups.usage import Usage


class GroupBounds:
    """The bounds of `GroupCoordinatorConfig`, beside what all coordinators of a broker hold."""

    def __init__(self, config: GroupCoordinatorConfig, usage: Callable[[], Usage]) -> None:
        self.config = config
        self._usage = usage

    def has_room_for_group(self) -> bool:
        """Whether one more group may be held."""
        return self._usage().groups < self.config.groups_max

    def has_room_for_member(self) -> bool:
        """Whether one more member, or id, may be held."""
        return self._usage().members < self.config.members_max

    def has_room_for(self, more: int) -> bool:
        """Whether so many more bytes may be held. There is always room for less."""
        return more <= 0 or self._usage().size + more <= self.config.bytes_max

    def has_room_in(self, group: Group) -> bool:
        """Whether a classic group may hold one more member, or id.

        While members of the last generation are missing there may be twice as many as the group's size.
        """
        return (
            self.has_room_for_member()
            and len(group.pending_members) < self.config.group_max_size
            and len(group.members) < 2 * self.config.group_max_size
        )

    def has_room_for_protocols(
        self, group: Group, protocols: Protocols, instead_of: Protocols = ()
    ) -> bool:
        """Whether a classic group may hold the protocols of a member."""
        more = protocol_bytes(protocols) - protocol_bytes(instead_of)
        return more <= 0 or self.has_room_for_assignments(group, more)

    def has_room_for_assignments(self, group: Group, size: int) -> bool:
        """Whether a classic group may hold so many bytes besides its protocols."""
        return group.protocol_bytes + size <= self.config.group_bytes_max and self.has_room_for(
            size
        )
