"""The states of a cluster member, and the events that lead from one to another.

The table in docs/architecture.md is the same one; a test compares the two.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto
from typing import Final


class ClusterMemberState(Enum):
    """The states of a member: whether it is registered, and whether it is leaving."""

    STARTING = ("starting", False, False)
    """The broker is not registered yet."""
    JOINED = ("joined", True, False)
    """Registered under the present session: the controller may give it roles."""
    LOST = ("lost", False, False)
    """The session has ended, and all roles with it; there is no other session yet."""
    REJOINING = ("rejoining", False, False)
    """Has another session and tries to register under it, unless its id has been taken."""
    LEAVING = ("leaving", True, True)
    """Registered, and about to stop: takes no records, and has others lead."""
    LEAVING_LOST = ("leaving, lost", False, True)
    """The session has ended while this broker was leaving."""
    LEAVING_REJOINING = ("leaving, rejoining", False, True)
    """Registers under another session for the rest of the departure."""
    LEFT = ("left", False, True)
    """Takes no part any more."""

    def __init__(self, label: str, is_joined: bool, is_leaving: bool) -> None:
        self.label = label
        self.is_joined = is_joined
        """Whether the broker is registered under the present session."""
        self.is_leaving = is_leaving


class MemberEvent(Enum):
    """The events that may change a member's state."""

    REGISTERED = auto()
    SESSION_LOST = auto()
    SESSION_CONNECTED = auto()
    """The session is connected: a new one, or the same one after an interruption."""
    HAND_OVER = auto()
    """The broker is asked to have others lead."""
    LEAVE = auto()


_S, _E = ClusterMemberState, MemberEvent
TRANSITIONS: Final[Mapping[ClusterMemberState, Mapping[MemberEvent, ClusterMemberState]]] = {
    _S.STARTING: {_E.REGISTERED: _S.JOINED, _E.LEAVE: _S.LEFT},
    _S.JOINED: {
        # Once more, when the view of the cluster could not be read after the registration.
        _E.REGISTERED: _S.JOINED,
        _E.SESSION_LOST: _S.LOST,
        _E.SESSION_CONNECTED: _S.JOINED,
        _E.HAND_OVER: _S.LEAVING,
        _E.LEAVE: _S.LEFT,
    },
    _S.LOST: {
        _E.SESSION_LOST: _S.LOST,
        _E.SESSION_CONNECTED: _S.REJOINING,
        _E.LEAVE: _S.LEFT,
    },
    _S.REJOINING: {
        _E.REGISTERED: _S.JOINED,
        _E.SESSION_LOST: _S.LOST,
        _E.SESSION_CONNECTED: _S.REJOINING,
        _E.LEAVE: _S.LEFT,
    },
    _S.LEAVING: {
        _E.REGISTERED: _S.LEAVING,
        _E.SESSION_LOST: _S.LEAVING_LOST,
        _E.SESSION_CONNECTED: _S.LEAVING,
        _E.HAND_OVER: _S.LEAVING,
        _E.LEAVE: _S.LEFT,
    },
    _S.LEAVING_LOST: {
        _E.SESSION_LOST: _S.LEAVING_LOST,
        _E.SESSION_CONNECTED: _S.LEAVING_REJOINING,
        _E.LEAVE: _S.LEFT,
    },
    _S.LEAVING_REJOINING: {
        _E.REGISTERED: _S.LEAVING,
        _E.SESSION_LOST: _S.LEAVING_LOST,
        _E.SESSION_CONNECTED: _S.LEAVING_REJOINING,
        _E.LEAVE: _S.LEFT,
    },
    _S.LEFT: {_E.LEAVE: _S.LEFT},
}
"""The next state by state and event; a pair that is missing cannot happen."""


def next_state(state: ClusterMemberState, event: MemberEvent) -> ClusterMemberState:
    """The state after the event. Raises `AssertionError` for an event that cannot happen in it."""
    after = TRANSITIONS[state].get(event)
    assert after is not None, f"a cluster member that is {state.label} cannot get {event.name}"
    return after
