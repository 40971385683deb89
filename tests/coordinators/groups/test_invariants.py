"""The invariants G1 to G8 of the groups specification, over random histories; and that each guard is missed."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.coordinators.groups import test_generation_vectors as generations
from tests.coordinators.groups import test_offset_vectors as offsets
from tests.coordinators.groups.history import History
from tests.coordinators.groups.mutations import MUTATIONS, apply
from tests.coordinators.groups.shell import Shell

STEPS = 80
SEEDS = range(400)
"""The first of them that finds a mutation is mostly below 20."""
FOUND_BY_VECTORS = {
    "a_generation_is_stored_as_a_stable_one": (
        generations.test_vector_49_a_generation_that_was_cut_short_is_not_issued_again
    ),
    "members_that_do_not_sync_stay": (
        generations.test_vector_20_a_member_that_does_not_sync_is_removed
    ),
    "an_older_generation_syncs": (
        generations.test_vector_21_a_sync_of_a_stable_group_is_answered_at_once
    ),
    "commits_of_new_members_are_accepted": (
        offsets.test_a_member_that_was_not_given_a_generation_commits_nothing
    ),
    "commits_under_way_outlive_their_group": (offsets.test_a_commit_under_way_goes_with_its_group),
}


@given(st.randoms(use_true_random=False))
def test_no_history_breaks_an_invariant(choices: random.Random) -> None:
    """G1 to G8 hold after every step, and a group that is left in peace becomes stable."""
    History(choices).play(STEPS)


@pytest.mark.slow
@pytest.mark.parametrize("mutation", [one for one in MUTATIONS if one not in FOUND_BY_VECTORS])
def test_histories_miss_a_guard(mutation: str) -> None:
    """Some seed breaks an invariant without the guard; `test_no_history_breaks_an_invariant` says none does with it."""
    with apply(mutation):
        for seed in SEEDS:
            try:
                History(random.Random(seed)).play(STEPS)
            except (AssertionError, KeyError, RecursionError):
                return
    pytest.fail("no history breaks anything")


@pytest.mark.parametrize("mutation", FOUND_BY_VECTORS)
def test_a_vector_misses_a_guard(mutation: str) -> None:
    """Guards that few histories meet are missed by a test vector; the vector itself passes with the guard."""
    with apply(mutation), pytest.raises(AssertionError):
        FOUND_BY_VECTORS[mutation](Shell())
