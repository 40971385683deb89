"""Elections: the first living in-sync replica leads, and nothing is lost unless it is allowed to be."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from echoless.broker.controller.elections import (
    ElectionType,
    Electorate,
    elect,
    elect_as_asked,
    is_election,
    is_unclean,
    unseat,
)
from echoless.broker.metadata.node_data import NO_LEADER, LeaderAndIsr
from echoless.broker.metadata.topic import StateChange, Topic
from tests.broker.controller.topics import state, topic

BROKERS = (1, 2, 3, 4)


def electorate(*live: int, leaving: tuple[int, ...] = ()) -> Electorate:
    return Electorate(frozenset(live), frozenset(leaving))


def decided(
    before: LeaderAndIsr | None,
    brokers: Electorate,
    replicas: tuple[int, ...] = (1, 2, 3),
    *,
    unclean: bool = False,
) -> tuple[int, int, tuple[int, ...]] | None:
    """(Leader, epoch, ISR) that one partition is given; None: it stays as it is."""
    one = topic({0: replicas}, {} if before is None else {0: before})
    changes = elect([one], brokers, is_unclean_allowed=lambda _: unclean)
    if not changes:
        return None
    (change,) = changes
    assert change[:3] == ("t", 0, before)
    return change.after.leader, change.after.leader_epoch, change.after.isr


def test_a_living_leader_leads_on() -> None:
    """A dead follower is the leader's business, so nothing is written."""
    assert decided(state(1, 5, (1, 2, 3)), electorate(1)) is None


def test_the_first_replica_in_sync_follows_a_dead_leader() -> None:
    """Replicas are tried in assignment order; the dead leave the ISR."""
    assert decided(state(1, 5, (3, 1, 2)), electorate(2, 3)) == (2, 6, (3, 2))
    assert decided(state(1, 5, (1, 3)), electorate(2, 3)) == (3, 6, (3,))


def test_without_a_replica_in_sync_nobody_leads() -> None:
    """The ISR stays: only its members are known to have everything."""
    assert decided(state(1, 5, (1, 2)), electorate(3)) == (NO_LEADER, 6, (1, 2))
    assert decided(state(NO_LEADER, 6, (1, 2)), electorate(3)) is None
    assert decided(state(1, 5, (1,)), electorate()) == (NO_LEADER, 6, (1,))


def test_an_offline_partition_is_led_when_one_in_sync_returns() -> None:
    """Whichever of the last ISR comes first."""
    assert decided(state(NO_LEADER, 6, (1, 2)), electorate(2, 3)) == (2, 7, (2,))


def test_partitions_without_a_state_get_their_first() -> None:
    """All living replicas are in sync, as there are no records."""
    assert decided(None, electorate(2, 3)) == (2, 0, (2, 3))
    assert decided(None, electorate(4)) is None


def test_a_broker_that_cannot_read_a_setting_does_not_lead_and_stays_in_sync() -> None:
    """It is told apart by topic: a newer version has stored what it does not know."""
    brokers = Electorate(frozenset({1, 2, 3}), unserved={"t": frozenset({1}), "u": frozenset({2})})
    assert decided(state(1, 5, (1, 2, 3)), brokers) == (2, 6, (1, 2, 3))
    assert decided(state(2, 6, (1, 2, 3)), brokers) is None
    assert decided(None, brokers) == (2, 0, (1, 2, 3))
    nobody = Electorate(frozenset({1, 2}), unserved={"t": frozenset({1, 2})})
    assert decided(state(1, 5, (1, 2)), nobody) == (NO_LEADER, 6, (1, 2))
    assert decided(state(NO_LEADER, 6, (1, 2)), nobody) is None
    assert decided(state(NO_LEADER, 6, (1, 2)), electorate(1, 2)) == (1, 7, (1, 2))
    asked_for = asked(state(2, 5, (2, 1)), brokers, ElectionType.PREFERRED)
    assert asked_for is None


def test_a_leaving_broker_is_relieved() -> None:
    """It leads no more and is waited for no more."""
    brokers = electorate(1, 2, 3, leaving=(1,))
    assert decided(state(1, 5, (1, 2, 3)), brokers) == (2, 6, (2, 3))
    assert decided(state(2, 5, (1, 2, 3)), brokers) == (2, 6, (2, 3))
    assert decided(state(2, 6, (2, 3)), brokers) is None


def test_a_leaving_broker_leads_while_another_may_catch_up() -> None:
    """It is the only one in sync; if no other replica is alive, it can leave at once."""
    before = state(1, 5, (1,))
    assert decided(before, electorate(1, 2, leaving=(1,))) is None
    assert decided(before, electorate(1, leaving=(1,))) == (NO_LEADER, 6, (1,))
    assert decided(before, electorate(1, 4, leaving=(1,))) == (NO_LEADER, 6, (1,))


def test_a_leaving_broker_takes_over_nothing() -> None:
    """It would be gone in a moment, and its records with it."""
    brokers = electorate(1, 2, leaving=(1,))
    assert decided(state(NO_LEADER, 5, (1,)), brokers) is None
    assert decided(state(NO_LEADER, 5, (1,)), brokers, unclean=True) is None


def test_an_unclean_election_only_where_it_is_allowed() -> None:
    """The first replica alive leads, alone in the ISR; with one in sync alive it is not needed."""
    before = state(1, 5, (1,))
    assert decided(before, electorate(2, 3), unclean=True) == (2, 6, (2,))
    assert decided(before, electorate(2, 3)) == (NO_LEADER, 6, (1,))
    assert decided(state(1, 5, (1, 3)), electorate(2, 3), unclean=True) == (3, 6, (3,))
    assert decided(before, electorate(4), unclean=True) == (NO_LEADER, 6, (1,))


def test_unclean_elections_are_told_from_clean_ones() -> None:
    """An election is unclean if the new leader was not in sync; losing the leader is no election."""
    clean = StateChange("t", 0, state(1, 5, (1, 2)), state(2, 6, (2,)))
    unclean = StateChange("t", 0, state(1, 5, (1,)), state(2, 6, (2,)))
    offline = StateChange("t", 0, state(1, 5, (1,)), state(NO_LEADER, 6, (1,)))
    first = StateChange("t", 0, None, state(2, 0, (2,)))
    same = StateChange("t", 0, state(1, 5, (1, 2)), state(1, 6, (1,)))
    assert [is_unclean(one) for one in (clean, unclean, offline, first, same)] == [
        *(False, True, False, False, False)
    ]
    assert [is_election(one) for one in (clean, unclean, offline, first, same)] == [
        *(True, True, False, True, False)
    ]


def test_a_replica_no_more_is_neither_leader_nor_in_sync() -> None:
    """An unassigned broker may have deleted its log."""
    assert decided(state(4, 5, (4, 2)), electorate(*BROKERS)) == (2, 6, (2,))
    assert decided(state(1, 5, (1, 4)), electorate(*BROKERS)) == (1, 6, (1,))
    assert decided(state(4, 5, (4,)), electorate(*BROKERS)) == (NO_LEADER, 6, (4,))


def test_a_broker_that_was_gone_for_a_moment_is_unseated() -> None:
    """It may have lost the end of its log: it stays in the ISR only if no one else is in it."""
    one = topic(
        {0: (1, 2), 1: (2, 1), 2: (1, 2)},
        {0: state(1, 5, (1, 2)), 1: state(2, 5, (2, 1)), 2: state(1, 5, (1,))},
    )
    changes = unseat([one], [1])
    assert [(change.partition, change.after.leader, change.after.isr) for change in changes] == [
        (0, NO_LEADER, (2,)),
        (2, NO_LEADER, (1,)),
    ]
    assert all(change.after.leader_epoch == 6 for change in changes)


def asked(
    before: LeaderAndIsr, brokers: Electorate, election_type: ElectionType
) -> tuple[int, int, tuple[int, ...]] | None:
    one = topic({0: (1, 2, 3)}, {0: before})
    changes = elect_as_asked({"t": one}, brokers, {("t", 0): election_type})
    return next(((c.after.leader, c.after.leader_epoch, c.after.isr) for c in changes), None)


def test_the_preferred_leader_is_elected_when_it_can_lead() -> None:
    """It has to be alive, to stay and to be in sync."""
    preferred = ElectionType.PREFERRED
    assert asked(state(2, 5, (2, 1)), electorate(1, 2), preferred) == (1, 6, (2, 1))
    assert asked(state(1, 5, (2, 1)), electorate(1, 2), preferred) is None
    assert asked(state(2, 5, (2,)), electorate(1, 2), preferred) is None
    assert asked(state(2, 5, (2, 1)), electorate(2), preferred) is None
    assert asked(state(2, 5, (2, 1)), electorate(1, 2, leaving=(1,)), preferred) is None


def test_an_unclean_election_can_be_asked_for() -> None:
    """It happens only without a leader; a replica in sync is preferred."""
    unclean = ElectionType.UNCLEAN
    assert asked(state(NO_LEADER, 5, (1,)), electorate(2, 3), unclean) == (2, 6, (2,))
    assert asked(state(NO_LEADER, 5, (3,)), electorate(2, 3), unclean) == (3, 6, (3,))
    assert asked(state(2, 5, (2,)), electorate(2, 3), unclean) is None
    assert asked(state(NO_LEADER, 5, (1,)), electorate(4), unclean) is None


def test_what_is_not_there_cannot_be_asked_for() -> None:
    """Unknown topics and partitions are left out."""
    one = topic({0: (1, 2)}, {})
    wanted = dict.fromkeys([("t", 0), ("t", 1), ("u", 0)], ElectionType.PREFERRED)
    assert elect_as_asked({"t": one}, electorate(1, 2), wanted) == []


brokers_alive = st.builds(
    lambda live, leaving, unserved: Electorate(live, leaving & live, {"t": unserved & live}),
    st.frozensets(st.sampled_from(BROKERS)),
    st.frozensets(st.sampled_from(BROKERS), max_size=2),
    st.frozensets(st.sampled_from(BROKERS), max_size=2),
)
replica_lists = st.lists(st.sampled_from(BROKERS), min_size=1, max_size=4, unique=True).map(tuple)
states = st.one_of(
    st.none(),
    st.builds(
        state,
        st.sampled_from([NO_LEADER, *BROKERS]),
        st.integers(0, 9),
        st.lists(st.sampled_from(BROKERS), min_size=1, max_size=4, unique=True).map(tuple),
    ),
)


def apply(one: Topic, changes: list[StateChange]) -> Topic:
    return one._replace(states={**one.states, **{c.partition: c.after for c in changes}})


@given(replicas=replica_lists, before=states, brokers=brokers_alive, unclean=st.booleans())
def test_what_holds_of_every_decision(
    replicas: tuple[int, ...], before: LeaderAndIsr | None, brokers: Electorate, unclean: bool
) -> None:
    """A leader is an assigned, living member of an ISR that is never empty; epochs only grow."""
    one = topic({0: replicas}, {} if before is None else {0: before})
    changes = elect([one], brokers, is_unclean_allowed=lambda _: unclean)
    for change in changes:
        after = change.after
        assert after.isr
        assert before is None or after.leader_epoch == before.leader_epoch + 1
        if after.leader != NO_LEADER:
            assert after.leader in after.isr
            assert after.leader in replicas
            assert after.leader in brokers.may_lead("t")
            assert set(after.isr) <= set(replicas)
        if before is not None and not is_unclean(change):
            assert set(after.isr) <= set(before.isr)
        assert unclean or not is_unclean(change)
    assert elect([apply(one, changes)], brokers, is_unclean_allowed=lambda _: unclean) == []


@given(replicas=replica_lists, before=states, brokers=brokers_alive)
def test_whoever_can_be_led_is_led(
    replicas: tuple[int, ...], before: LeaderAndIsr | None, brokers: Electorate
) -> None:
    """Wherever a replica in sync is alive and stays, there is a living leader afterwards."""
    one = topic({0: replicas}, {} if before is None else {0: before})
    changes = elect([one], brokers, is_unclean_allowed=lambda _: False)
    after = apply(one, changes).states.get(0)
    in_sync = set(replicas) if before is None else set(before.isr) & set(replicas)
    if in_sync & brokers.may_lead("t"):
        assert after is not None
        assert after.leader in brokers.may_lead("t")


@pytest.mark.parametrize("election_type", list(ElectionType))
@given(replicas=replica_lists, before=states, brokers=brokers_alive)
def test_what_is_asked_for_is_held_once(
    election_type: ElectionType,
    replicas: tuple[int, ...],
    before: LeaderAndIsr | None,
    brokers: Electorate,
) -> None:
    """The same request after it was held changes nothing more."""
    one = topic({0: replicas}, {} if before is None else {0: before})
    wanted = {("t", 0): election_type}
    one = apply(one, elect_as_asked({"t": one}, brokers, wanted))
    assert elect_as_asked({"t": one}, brokers, wanted) == []
