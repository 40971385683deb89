"""The coordinator of the groups of one partition of `__consumer_offsets`."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from coordinators.groups.answers import ListedGroup
from coordinators.groups.config import GroupConfig
from coordinators.groups.effects import Effect
from coordinators.groups.events import Event, Now


class GroupCoordinator:
    """One leader epoch's view of the groups: made when the partition is led, dropped when the lead is lost."""

    def __init__(self, config: GroupConfig) -> None:
        self._config = config

    def apply(self, key: bytes, value: bytes | None) -> str | None:
        """Replay a record of the log; only while loading. Returns why it was skipped, for a warning; else None."""
        raise NotImplementedError

    def start(self, now: Now) -> Iterator[list[Effect]]:
        """Begin after the replay: what follows for one group after the other. Run to the end before any `step`."""
        raise NotImplementedError

    def step(self, event: Event, now: Now) -> list[Effect]:
        """Handle an event, and return what follows from it."""
        raise NotImplementedError

    def expire_offsets(self, now: Now) -> Iterator[list[Effect]]:
        """Expire offsets and groups, a bounded number per item; steps may come between. Every ten minutes."""
        raise NotImplementedError

    def forget_topic(self, topic: str, now: Now) -> Iterator[list[Effect]]:
        """Remove the offsets of a deleted topic from all groups, a bounded number of groups per item."""
        raise NotImplementedError

    def listed(
        self, states: Collection[str], types: Collection[str]
    ) -> Iterator[ListedGroup | None]:
        """The groups for ListGroups; filters ignore case, empty ones match all. None for one filtered out."""
        raise NotImplementedError
