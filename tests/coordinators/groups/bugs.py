"""Bugs of a coordinator that a test asks for: a method that changes its state raises, before or after its change."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from echoless.coordinators.groups.classic import membership
from echoless.coordinators.groups.consumer import parking
from echoless.coordinators.groups.consumer.group import ConsumerGroup
from echoless.coordinators.groups.consumer.sessions import ConsumerSessions
from echoless.coordinators.groups.group import Group
from echoless.coordinators.groups.pending_appends import PendingAppends
from echoless.coordinators.groups.store import GroupStore

CHANGES: tuple[tuple[Any, str], ...] = (
    (ConsumerGroup, "put"),
    (ConsumerGroup, "take_changes"),
    (ConsumerSessions, "extend"),
    (Group, "add"),
    (Group, "remove"),
    (Group, "wait_in_join"),
    (GroupStore, "settle"),
    (PendingAppends, "begin"),
    (membership, "hand_out"),
    (parking, "park"),
    (parking, "take"),
)
"""Methods and functions that change what is not durable."""


class BugError(Exception):
    """The exception of a bug."""


class Bugs:
    """Counts the changes of the steps of a coordinator; one of them raises."""

    def __init__(self) -> None:
        self.left: int | None = None
        """How many changes are made before the one that raises, and half changes; None for no bug."""
        self.is_in_step = False
        self.kind: type[Exception] = BugError
        """The exception that the shell takes for a bug."""

    def reach(self) -> None:
        """Come to a place at which a bug may be."""
        if self.left is None or not self.is_in_step:
            return
        self.left -= 1
        if self.left < 0:
            self.left = None
            raise BugError

    @contextmanager
    def planted(self) -> Iterator[None]:
        """Put them into the product while the context lasts."""
        patches = [patch.object(owner, name, self._faulty(owner, name)) for owner, name in CHANGES]
        for one in patches:
            one.start()
        try:
            yield
        finally:
            for one in patches:
                one.stop()

    def _faulty(self, owner: Any, name: str) -> Any:
        known = getattr(owner, name)

        def faulty(*arguments: Any, **named: Any) -> Any:
            self.reach()
            found = known(*arguments, **named)
            self.reach()
            return found

        return faulty
