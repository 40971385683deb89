"""The states of a cluster member: each event in each state, as docs/architecture.md has it."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest

from echoless.broker.cluster.member_state import (
    TRANSITIONS,
    ClusterMemberState,
    MemberEvent,
    next_state,
)

PAGE = Path(__file__).parents[3] / "docs" / "architecture.md"


def documented() -> dict[tuple[ClusterMemberState, MemberEvent], ClusterMemberState | None]:
    """The table of the page; None for what cannot happen."""
    table = PAGE.read_text().partition("| state | REGISTERED |")
    lines = (table[1] + table[2]).partition("\n\n")[0].splitlines()
    header, _, *rows = ([cell.strip() for cell in line.split("|")[1:-1]] for line in lines)
    return {
        (ClusterMemberState[state], MemberEvent[event]): None
        if cell == "-"
        else ClusterMemberState[cell]
        for state, *cells in rows
        for event, cell in zip(header[1:], cells, strict=True)
    }


@pytest.mark.parametrize(("state", "event"), list(product(ClusterMemberState, MemberEvent)))
def test_each_event_in_each_state(state: ClusterMemberState, event: MemberEvent) -> None:
    """Leads to the state that the page names; where it names none, the event raises."""
    expected = documented()[state, event]
    if expected is None:
        with pytest.raises(AssertionError, match=f"{state.label} cannot get {event.name}"):
            next_state(state, event)
    else:
        assert next_state(state, event) is expected


def reachable(state: ClusterMemberState) -> set[ClusterMemberState]:
    """The states that any number of events lead to, the state itself included."""
    found, new = {state}, {state}
    while new:
        new = {after for one in new for after in TRANSITIONS[one].values()} - found
        found |= new
    return found


def test_every_state_can_be_reached_and_left() -> None:
    """From the start of the process to its end."""
    assert reachable(ClusterMemberState.STARTING) == set(ClusterMemberState)
    assert all(ClusterMemberState.LEFT in reachable(state) for state in ClusterMemberState)


def test_a_member_that_is_leaving_never_takes_records_again() -> None:
    """Whatever its sessions do meanwhile: others are about to lead, or do so already."""
    for state in ClusterMemberState:
        if state.is_leaving:
            assert all(after.is_leaving for after in reachable(state))


def test_a_session_that_is_lost_leaves_no_member_registered() -> None:
    """Only a registration makes it joined again."""
    for state, events in TRANSITIONS.items():
        if MemberEvent.SESSION_LOST in events:
            assert not events[MemberEvent.SESSION_LOST].is_joined
        joins = {
            event for event, after in events.items() if after.is_joined and not state.is_joined
        }
        assert joins <= {MemberEvent.REGISTERED}
