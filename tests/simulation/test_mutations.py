"""The checkers bite: with one promise taken out of the code under test, something is found."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.simulation.hazards import (
    compaction,
    failover,
    groups,
    isolation,
    lifetimes,
    transactions,
)
from tests.simulation.history import Kind, play
from tests.simulation.mutations import MUTATIONS, apply
from tests.simulation.transactions.mutations import apply as apply_to_transactions
from tests.simulation.transactions.writer import AbortableError
from tests.simulation.virtual_loop import LivelockError

SEEDS_MAX = 100
OTHER_SEEDS_MAX = 40

FOUND_BY_HISTORIES: dict[str, tuple[str, ...] | None] = {
    "window is ignored": None,
    "new leader forgets producers": None,
    "followers never cut": None,
    "followers cut to the high watermark": None,
    "no state transfer": None,
    "no session fence": ("cut from coordinator", "pause", "isolate"),
    "shrunken isr counts": ("isolate",),
    "gaps at once": None,
    "waits end with the epoch": ("lead on", "weather", "lead on", "slow disk"),
}
"""Random histories find these soon, among faults of all kinds (None) or of these kinds."""

FOUND_BY_OTHER_HISTORIES: dict[str, tuple[Kind, tuple[str, ...] | None, str]] = {
    "commits are answered early": (Kind.GROUPS, ("isolate", "kill leader"), "G4"),
    "old generations commit": (Kind.GROUPS, None, "G5"),
    "windows are cleaned away": (Kind.COMPACTED, None, "knows"),
    "last batches are cleaned away": (Kind.COMPACTED, None, "refuses to start"),
}
"""The kind of histories that misses the guard soon, among faults of these kinds, and a word of what its checkers say."""

FOUND_BY_SCENARIOS: dict[str, tuple[Callable[[], list[str]], str]] = {
    "window is ignored": (isolation.the_session_ends_before_the_write, "twice"),
    "new leader forgets producers": (failover.a_retry_before_the_original, "spurious 59"),
    "followers never cut": (failover.a_retry_before_the_original, "differ"),
    "followers cut to the high watermark": (failover.two_quick_failovers, "spurious 45"),
    "no state transfer": (lifetimes.a_fresh_replica_leads, "spurious 59"),
    "no session fence": (isolation.a_paused_leader_wakes, "its session had ended"),
    "shrunken isr counts": (isolation.a_leader_alone_shrinks, "lost"),
    "no epoch start rule": (failover.a_follower_below_the_epoch_start, "lost"),
    "newcomers count late": (failover.a_newcomer_falls_behind_again, "lost"),
    "no broker epoch check": (isolation.a_fetch_of_an_earlier_life, "lost"),
    "old repeats at once": (failover.an_old_repeat_above_the_high_watermark, "spurious 45"),
    "deleted epochs compare": (lifetimes.the_log_start_hides_an_epoch, "of producer"),
    "gaps at once": (failover.a_batch_overtakes_another, "a gap"),
    "zombie coordinators answer": (groups.a_zombie_coordinator_wakes, "is read back"),
    "commits are answered early": (groups.a_commit_that_no_replica_has, "is read back"),
    "generations are not stored": (groups.a_generation_is_cut_short, "is given to"),
    "old generations commit": (groups.a_commit_comes_after_the_next_generation, "is accepted in"),
    "old heartbeats acknowledge": (
        groups.an_old_heartbeat_acknowledges_a_revocation,
        "another member has",
    ),
    "old timers strike": (groups.an_old_timer_strikes, "gave its partition up"),
    "loads do not wait": (groups.a_load_reads_more_than_is_committed, "was read back"),
    "uncommitted records replace": (compaction.an_end_is_cut_off_after_cleaning, "the newest of"),
    "epochs begin after holes": (compaction.a_hole_hides_the_beginning_of_an_epoch, "no disk was"),
    "windows are cleaned away": (compaction.a_fresh_replica_of_a_cleaned_log_leads, "a repeat was"),
    "last batches are cleaned away": (compaction.segments_end_in_holes, "refuses to start"),
    "no controller epoch check": (isolation.an_old_controller_writes_late, "another epoch"),
    "waits end with the epoch": (failover.a_leader_leads_on, "refused with"),
    "waits end with certainty": (failover.a_doubt_passes, "refused with"),
    "waits outlast another leader": (failover.a_leader_leads_again, "lost"),
}
"""The scenario, and a word of what the checkers say."""


TRANSACTIONAL_BY_HISTORIES: dict[str, tuple[tuple[str, ...] | None, str]] = {
    "leaders do not ask": (None, ""),
    "late markers are accepted": (("lose markers",), "a second marker"),
    "readers see open transactions": (None, "its log says"),
    "aborted ranges are left out": (None, "ABORTED_READ"),
}
"""A rule of transactions: the kinds of faults among which histories miss it soon, and a word of what their checkers say."""

TRANSACTIONAL_BY_SCENARIOS: dict[str, tuple[Callable[[], list[str]], str]] = {
    "connections have no order": (
        transactions.a_late_end_after_the_coordinator_has_moved_twice,
        "AbortableError",
    ),
    "answers come before the commit": (transactions.a_decision_that_no_replica_has, "LOST"),
    "markers are answered early": (transactions.a_marker_is_lost_with_its_leader, "do not end"),
    "late markers are accepted": (
        transactions.a_coordinator_wakes_with_old_markers,
        "a second marker",
    ),
    "refused timeouts come at once": (transactions.too_few_replicas, "callbacks at"),
}


@pytest.mark.slow
@pytest.mark.parametrize("mutation", TRANSACTIONAL_BY_HISTORIES)
def test_histories_of_transactions_find(mutation: str) -> None:
    """Some seed among the first breaks a promise of transactions."""
    faults, word = TRANSACTIONAL_BY_HISTORIES[mutation]
    with apply_to_transactions(mutation):
        found = (play(seed, faults, kind=Kind.TRANSACTIONS).findings for seed in range(SEEDS_MAX))
        assert any(word in "\n".join(findings) for findings in found if findings)


@pytest.mark.parametrize("mutation", TRANSACTIONAL_BY_SCENARIOS)
def test_a_scenario_of_transactions_finds(mutation: str) -> None:
    """The hazard that the rule is there for comes true without it."""
    scenario, word = TRANSACTIONAL_BY_SCENARIOS[mutation]
    with apply_to_transactions(mutation):
        assert word in _what_breaks(scenario)


@pytest.mark.slow
@pytest.mark.parametrize("mutation", FOUND_BY_HISTORIES)
def test_histories_find(mutation: str) -> None:
    """Some seed among the first hundred breaks a promise, and none does without the mutation."""
    kinds = FOUND_BY_HISTORIES[mutation]
    with apply(mutation):
        found = next(seed for seed in range(SEEDS_MAX) if play(seed, kinds).findings)
    assert play(found, kinds).findings == []


@pytest.mark.slow
@pytest.mark.parametrize("mutation", FOUND_BY_OTHER_HISTORIES)
def test_histories_of_other_kinds_find(mutation: str) -> None:
    """Some seed among the first breaks the promise that the guard is there for."""
    kind, faults, word = FOUND_BY_OTHER_HISTORIES[mutation]
    with apply(mutation):
        assert any(
            word in "\n".join(play(seed, faults, kind=kind).findings)
            for seed in range(OTHER_SEEDS_MAX)
        )


@pytest.mark.parametrize("mutation", MUTATIONS)
def test_a_scenario_finds(mutation: str) -> None:
    """The hazard that the rule is there for comes true without it."""
    scenario, word = FOUND_BY_SCENARIOS[mutation]
    with apply(mutation):
        assert word in _what_breaks(scenario)


def _what_breaks(scenario: Callable[[], list[str]]) -> str:
    """The findings of the scenario, even if it cannot be played to its end."""
    try:
        return "\n".join(scenario())
    except (AssertionError, AbortableError, LivelockError) as error:
        return f"{type(error).__name__}: {error}"
