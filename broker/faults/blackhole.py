"""A client of which everything is lost: until its sessions with this broker's coordinators have ended.

The sessions are those that its lost requests name: its memberships in groups, and its open transactions. Whether they are
still there is looked up now and then, while the client is kept away and has some; nothing is done for any other.
"""

from __future__ import annotations

import asyncio
from typing import Final

from echoless.broker.faults.action import Until
from echoless.broker.faults.coordinated import CoordinatedStates
from echoless.broker.faults.requests import ReadRequest
from echoless.broker.faults.rule import ActiveRule

_LOOK_EVERY_S: Final = 0.02


class Blackhole:
    """One rule and its client. Belongs to the event loop."""

    def __init__(self, rule: ActiveRule, coordinated: CoordinatedStates) -> None:
        self._rule = rule
        self._coordinated = coordinated
        self._members: set[tuple[str, str]] = set()
        """Groups, and the client ids of their members."""
        self._transactions: dict[str, tuple[int, int, int]] = {}
        self._look: asyncio.TimerHandle | None = None

    def note(self, request: ReadRequest) -> None:
        """Remembers the sessions that a lost request names."""
        if self._rule.action.until is Until.REMOVED:
            return
        facts = request.facts
        for group in facts.groups:
            if facts.client_id and self._coordinated.has_member(group, facts.client_id):
                self._members.add((group, facts.client_id))
        for name in facts.transactional_ids:
            found = self._coordinated.open_transaction(name)
            if found is not None:
                self._transactions.setdefault(name, found)
        if self._look is None and (self._members or self._transactions):
            self._look_later()

    def _look_later(self) -> None:
        loop = asyncio.get_running_loop()
        self._look = loop.call_later(_LOOK_EVERY_S, self._look_now)

    def _look_now(self) -> None:
        if self._rule.has_ended.is_set():
            return
        if any(self._coordinated.has_member(*one) is not False for one in self._members):
            self._look_later()
            return
        still_open = self._coordinated.open_transaction
        if any(still_open(name) == found for name, found in self._transactions.items()):
            self._look_later()
            return
        self._rule.turns.end()
        self._rule.end()
