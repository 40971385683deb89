"""Reassignment: step by step to other brokers, and never without what was committed."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from echoless.broker.controller.elections import Electorate, elect
from echoless.broker.controller.reassignment import (
    is_moved,
    move_into_target,
    origin_of,
    reassign,
    target_of,
)
from echoless.broker.metadata.node_data import NO_LEADER, LeaderAndIsr, Reassignment
from echoless.broker.metadata.topic import Topic
from tests.broker.controller.topics import state, topic

BROKERS = (1, 2, 3, 4, 5)
ALL = Electorate(frozenset(BROKERS))


def asked(one: Topic, *target: int) -> Topic:
    """The topic once its partition 0 is asked to move."""
    replicas, moving = reassign(one, 0, target)
    return one._replace(
        assignment={0: replicas}, reassignments={} if moving is None else {0: moving}
    )


def moved(one: Topic, brokers: Electorate = ALL) -> Topic:
    """The topic after every step that is possible."""
    changes = move_into_target([one], brokers)
    one = with_states(one, {change.partition: change.after for change in changes})
    if 0 in one.reassignments and is_moved(one, 0, brokers):
        one = one._replace(assignment={0: target_of(one, 0)}, reassignments={})
    return one


def with_states(one: Topic, states: dict[int, LeaderAndIsr]) -> Topic:
    return one._replace(states={**one.states, **states})


def shown(one: Topic) -> tuple[tuple[int, ...], int, int, tuple[int, ...]]:
    """Replicas, leader, epoch, ISR."""
    now = one.states[0]
    return one.assignment[0], now.leader, now.leader_epoch, now.isr


def test_on_the_way_a_partition_has_old_and_new_replicas() -> None:
    """The target first, then those that will go."""
    one = asked(topic({0: (1, 2, 3)}, {0: state(1, 5, (1, 2, 3))}), 1, 4, 5)
    assert one.assignment[0] == (1, 4, 5, 2, 3)
    assert one.reassignments[0] == Reassignment(adding=(4, 5), removing=(2, 3))
    assert (origin_of(one, 0), target_of(one, 0)) == ((1, 2, 3), (1, 4, 5))


def test_it_arrives_when_all_new_replicas_are_in_sync() -> None:
    """Before that nothing changes; then the old ones leave in a new epoch."""
    one = asked(topic({0: (1, 2)}, {0: state(1, 5, (1, 2))}), 1, 3, 4)
    assert moved(with_states(one, {0: state(1, 5, (1, 2, 3))})).reassignments
    arrived = moved(with_states(one, {0: state(1, 5, (1, 2, 3, 4))}))
    assert shown(arrived) == ((1, 3, 4), 1, 6, (1, 3, 4))
    assert not arrived.reassignments


def test_the_leader_is_moved_into_the_target() -> None:
    """The first living replica of the target that is in sync leads."""
    one = asked(topic({0: (1,)}, {0: state(1, 5, (1,))}), 2, 3)
    ready = with_states(one, {0: state(1, 5, (1, 2, 3))})
    assert shown(moved(ready)) == ((2, 3), 2, 6, (2, 3))
    without_two = Electorate(frozenset({1, 3}))
    assert shown(moved(ready, without_two)) == ((2, 3), 3, 6, (2, 3))


def test_the_old_replicas_stay_until_the_state_is_without_them() -> None:
    """An old one that is back in the ISR is let go again before the assignment changes."""
    one = asked(topic({0: (1,)}, {0: state(1, 5, (1,))}), 2)
    assert is_moved(with_states(one, {0: state(2, 6, (2,))}), 0, ALL)
    assert not is_moved(with_states(one, {0: state(2, 6, (2, 1))}), 0, ALL)
    assert not is_moved(with_states(one, {0: state(NO_LEADER, 6, (2,))}), 0, ALL)
    (again,) = move_into_target([with_states(one, {0: state(2, 6, (2, 1))})], ALL)
    assert (again.after.leader, again.after.leader_epoch, again.after.isr) == (2, 7, (2,))


def test_a_dead_new_replica_is_waited_for() -> None:
    """It may return, or the reassignment be cancelled."""
    one = asked(topic({0: (1,)}, {0: state(1, 5, (1,))}), 1, 2)
    assert moved(one, Electorate(frozenset({1}))).reassignments


def test_a_lost_machine_is_replaced_without_it() -> None:
    """Neither a dead broker that goes nor a dead one that stays holds anything up."""
    one = asked(topic({0: (1, 2, 3)}, {0: state(1, 5, (1, 2))}), 1, 2, 4)
    ready = with_states(one, {0: state(1, 5, (1, 4))})
    survivors = Electorate(frozenset({1, 4}))
    assert shown(moved(ready, survivors)) == ((1, 2, 4), 1, 5, (1, 4))


def test_a_living_replica_of_the_target_is_waited_for() -> None:
    """Letting a replica in sync go while another one lags would only make it less safe."""
    one = asked(topic({0: (1, 2, 3)}, {0: state(1, 5, (1, 3))}), 1, 2)
    assert moved(one).reassignments
    assert shown(moved(one, Electorate(frozenset({1, 3})))) == ((1, 2), 1, 6, (1,))


def test_nothing_moves_to_where_nobody_is_in_sync() -> None:
    """The old replicas are all that is left of the partition."""
    one = asked(topic({0: (1, 2)}, {0: state(2, 5, (2,))}), 1)
    survivors = Electorate(frozenset({2}))
    assert moved(one, survivors) == one


def test_cancelled_before_a_new_replica_is_in_sync() -> None:
    """Nothing has to be waited for."""
    one = asked(topic({0: (1, 2)}, {0: state(1, 5, (1, 2))}), 3, 4)
    cancelled = asked(one, *origin_of(one, 0))
    assert (cancelled.assignment[0], cancelled.reassignments) == ((1, 2), {})


def test_cancelled_while_a_new_replica_is_in_sync() -> None:
    """It leaves the ISR, and the leadership, before it leaves the assignment."""
    one = asked(topic({0: (1, 2)}, {0: state(1, 5, (1, 2))}), 3, 4)
    one = with_states(one, {0: state(3, 6, (2, 3))})
    cancelled = asked(one, *origin_of(one, 0))
    assert cancelled.assignment[0] == (1, 2, 3)
    assert cancelled.reassignments[0] == Reassignment(adding=(), removing=(3,))
    survivors = Electorate(frozenset({2, 3}))
    assert shown(moved(cancelled, survivors)) == ((1, 2), 2, 7, (2,))


def test_a_new_order_is_no_move() -> None:
    """Only the preferred leader changes."""
    one = asked(topic({0: (1, 2)}, {0: state(1, 5, (1, 2))}), 2, 1)
    assert (one.assignment[0], one.reassignments) == ((2, 1), {})


def test_another_target_replaces_the_first() -> None:
    """Replicas added for the first target are dropped, unless they are in sync."""
    one = asked(topic({0: (1, 2)}, {0: state(1, 5, (1, 2))}), 1, 3, 4)
    again = asked(with_states(one, {0: state(1, 5, (1, 2, 3))}), 1, 5)
    assert again.assignment[0] == (1, 5, 3, 2)
    assert again.reassignments[0] == Reassignment(adding=(5,), removing=(3, 2))


def test_a_partition_without_a_state_waits_for_it() -> None:
    """Its first state comes by election."""
    one = asked(topic({0: (1,)}, {}), 2)
    assert move_into_target([one], ALL) == []
    assert not is_moved(one, 0, ALL)


targets = st.lists(st.sampled_from(BROKERS), min_size=1, max_size=4, unique=True)
living = st.frozensets(st.sampled_from(BROKERS))


@given(first=targets, requests=st.lists(st.tuples(targets, living, living), min_size=1, max_size=5))
def test_what_is_in_sync_survives_any_requests(
    first: list[int], requests: Sequence[tuple[list[int], frozenset[int], frozenset[int]]]
) -> None:
    """Whatever is requested and whichever broker dies, a replica in sync is always assigned.

    The end is as requested.
    """
    one = topic({0: tuple(first)}, {0: state(first[0], 0, tuple(first))})
    for target, live, caught_up in requests:
        one = asked(one, *target)
        brokers = Electorate(live)
        for _ in range(3):
            one = elected(one, brokers)
            one = synced(one, live & caught_up)
            epoch = one.states[0].leader_epoch
            one = moved(one, brokers)
            assert one.states[0].leader_epoch >= epoch
            assert set(one.states[0].isr) <= set(one.assignment[0])
    for _ in range(3):
        one = moved(synced(elected(one, ALL), frozenset(BROKERS)))
    assert one.assignment[0] == tuple(target)
    assert not one.reassignments


def elected(one: Topic, brokers: Electorate) -> Topic:
    changes = elect([one], brokers, is_unclean_allowed=lambda _: False)
    return with_states(one, {change.partition: change.after for change in changes})


def synced(one: Topic, caught_up: frozenset[int]) -> Topic:
    """The leader has taken these of its replicas into the ISR."""
    now = one.states[0]
    if now.leader == NO_LEADER:
        return one
    added = tuple(r for r in one.assignment[0] if r in caught_up and r not in now.isr)
    return with_states(one, {0: now._replace(isr=(*now.isr, *added))})
