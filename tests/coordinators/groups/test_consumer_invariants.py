"""The invariants of the consumer protocol over random histories; and that each guard is missed."""

from __future__ import annotations

import random
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from echoless.coordinators.groups.consumer import assignment
from tests.coordinators.groups import test_consumer_vectors as vectors
from tests.coordinators.groups.consumer_history import ConsumerHistory
from tests.coordinators.groups.consumer_mutations import MUTATIONS, apply
from tests.coordinators.groups.consumers import ConsumerShell

STEPS = 80
SEEDS = range(300)
"""The first of them that finds a mutation is mostly below 20, and at most 91."""
FOUND_BY_VECTORS = {
    "a_retry_goes_on_towards_the_target": (
        vectors.test_a_delayed_heartbeat_of_the_previous_epoch_gives_nothing_up
    ),
    "members_go_without_a_new_epoch": (
        vectors.test_a_member_that_leaves_an_idle_group_begins_an_epoch
    ),
    "an_earlier_incarnation_goes_on": vectors.test_an_earlier_incarnation_is_fenced,
    "epochs_begin_anew_after_the_other_protocol": (
        vectors.test_an_empty_classic_group_becomes_a_consumer_group_and_back
    ),
    "members_that_give_nothing_up_stay": (
        vectors.test_vector_60_a_member_that_gives_nothing_up_is_removed
    ),
    "a_static_member_that_is_away_is_answered": (
        vectors.test_a_static_member_that_is_away_is_not_answered_under_its_old_epoch
    ),
}


@given(st.randoms(use_true_random=False))
def test_no_history_breaks_an_invariant(choices: random.Random) -> None:
    """They hold after every step, and a group that is left in peace becomes stable."""
    ConsumerHistory(choices).play(STEPS)


@given(st.randoms(use_true_random=False))
def test_no_history_in_which_targets_are_made_in_steps_breaks_an_invariant(
    choices: random.Random,
) -> None:
    """Whatever comes between the steps waits for the target, or it is lost with the lead."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(assignment, "WORK_AT_ONCE", -1)
        ConsumerHistory(choices).play(STEPS)


@pytest.mark.slow
@pytest.mark.parametrize("mutation", [one for one in MUTATIONS if one not in FOUND_BY_VECTORS])
def test_histories_miss_a_guard(mutation: str) -> None:
    """Some seed breaks an invariant without the guard; `test_no_history_breaks_an_invariant` says none does with it."""
    with apply(mutation):
        for seed in SEEDS:
            try:
                ConsumerHistory(random.Random(seed)).play(STEPS)
            except (AssertionError, KeyError, struct.error):
                return
    pytest.fail("no history breaks anything")


@pytest.mark.parametrize("mutation", FOUND_BY_VECTORS)
def test_a_vector_misses_a_guard(mutation: str) -> None:
    """Guards that few histories meet are missed by a test vector; the vector itself passes with the guard."""
    with apply(mutation), pytest.raises(AssertionError):
        FOUND_BY_VECTORS[mutation](ConsumerShell())
