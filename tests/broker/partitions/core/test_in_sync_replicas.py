"""The in-sync replicas and the committed offset: the leader's knowledge of its followers."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from echoless.broker.partitions.core.in_sync_replicas import UNKNOWN_OFFSET, InSyncReplicas

LAG_MAX_S = 10.0


def in_sync(isr: tuple[int, ...] = (1, 2, 3), epoch_start_offset: int = 0) -> InSyncReplicas:
    """Broker 1 leads brokers 2 and 3, from time 0 on."""
    return InSyncReplicas(1, (1, 2, 3), isr, epoch_start_offset=epoch_start_offset, now_s=0.0)


def wanted(
    replicas: InSyncReplicas,
    *,
    end: int,
    high_watermark: int = 0,
    now_s: float = 1.0,
    registered: dict[int, int] | None = None,
) -> tuple[int, ...]:
    lives = {1: 0, 2: 0, 3: 0} if registered is None else registered
    return replicas.wanted(
        leader_end_offset=end,
        high_watermark=high_watermark,
        lag_max_s=LAG_MAX_S,
        now_s=now_s,
        registered_epoch=lives.get,
    )


def test_nothing_is_committed_before_every_member_has_fetched() -> None:
    """A new leader does not know how far its followers are, so it commits nothing."""
    replicas = in_sync()
    assert replicas.committed_offset(10) == UNKNOWN_OFFSET
    replicas.note_fetch(2, 0, 7, 10, 1.0)
    assert replicas.committed_offset(10) == UNKNOWN_OFFSET
    replicas.note_fetch(3, 0, 9, 10, 1.0)
    assert replicas.committed_offset(10) == 7


def test_the_larger_isr_counts_while_a_change_is_under_way() -> None:
    """Hazard 2: until the shrink is committed, the one who is to leave still counts."""
    replicas = in_sync()
    replicas.note_fetch(2, 0, 10, 10, 1.0)
    replicas.note_fetch(3, 0, 4, 10, 1.0)
    replicas.begin_change((1, 2))
    assert replicas.committed_offset(10) == 4
    replicas.settle((1, 2))
    assert replicas.committed_offset(10) == 10
    replicas.begin_change((1, 2, 3))
    assert replicas.committed_offset(10) == 4


def test_a_follower_that_lags_leaves() -> None:
    """It has lagged for longer than allowed; one that caught up meanwhile stays."""
    replicas = in_sync()
    replicas.note_fetch(2, 0, 5, 5, 1.0)
    replicas.note_fetch(3, 0, 5, 5, 1.0)
    replicas.note_fetch(2, 0, 5, 8, 9.0)
    assert wanted(replicas, end=8, now_s=11.0) == (1, 2, 3)
    replicas.note_fetch(2, 0, 8, 9, 11.5)  # all that there was at 9.0
    assert wanted(replicas, end=9, now_s=12.0) == (1, 2)
    assert wanted(replicas, end=9, now_s=19.5) == (1,)


def test_an_idle_partition_loses_nobody() -> None:
    """A follower that has everything is in sync, however long ago it fetched."""
    replicas = in_sync()
    for follower in (2, 3):
        replicas.note_fetch(follower, 0, 5, 5, 1.0)
    assert wanted(replicas, end=5, now_s=1000.0) == (1, 2, 3)


def test_a_lag_that_the_leader_made_itself_does_not_count() -> None:
    """While the leader refused their fetches their time stood still, and it continues then."""
    replicas = in_sync()
    replicas.note_fetch(2, 0, 5, 5, 1.0)
    replicas.note_fetch(3, 0, 5, 5, 3.0)
    replicas.excuse(9.0, 12.0)
    assert wanted(replicas, end=8, now_s=19.5) == (1, 2, 3)
    assert wanted(replicas, end=8, now_s=20.5) == (1, 3)
    assert wanted(replicas, end=8, now_s=22.5) == (1,)  # it had caught up at 12.0, not later


def test_who_would_have_to_leave_at_once_does_not_join() -> None:
    """It holds even if the high watermark does not move.

    Leaving and joining would alternate for ever.
    """
    replicas = in_sync((1,))
    replicas.note_fetch(2, 0, 5, 5, 1.0)
    assert wanted(replicas, end=8, high_watermark=5, now_s=12.0) == (1,)
    replicas.note_fetch(2, 0, 8, 8, 13.0)
    assert wanted(replicas, end=9, high_watermark=5, now_s=13.5) == (1, 2)


def test_a_broker_that_is_gone_leaves_at_once() -> None:
    """No registration, no place: it need not be waited for."""
    replicas = in_sync()
    for follower in (2, 3):
        replicas.note_fetch(follower, 0, 5, 5, 1.0)
    assert wanted(replicas, end=5, registered={1: 0, 3: 0}) == (1, 3)


def test_a_newcomer_needs_the_high_watermark_and_the_start_of_the_epoch() -> None:
    """Hazard 5: the high watermark alone may be older than what the last leader committed."""
    replicas = in_sync((1, 2), epoch_start_offset=8)
    replicas.note_fetch(3, 0, 6, 8, 1.0)
    assert wanted(replicas, end=8, high_watermark=5) == (1, 2)
    replicas.note_fetch(3, 0, 8, 9, 2.0)
    assert wanted(replicas, end=9, high_watermark=9) == (1, 2)
    assert wanted(replicas, end=9, high_watermark=8) == (1, 2, 3)


def test_only_the_registered_life_of_a_follower_joins() -> None:
    """Records of an earlier broker epoch may be lost, and its fetches may come late."""
    replicas = in_sync((1, 2))
    replicas.note_fetch(3, 7, 5, 5, 1.0)
    assert wanted(replicas, end=5, registered={1: 0, 2: 0, 3: 8}) == (1, 2)
    replicas.note_fetch(3, 8, 2, 5, 2.0)
    assert replicas.log_end_offset(3) == 2


def test_a_late_fetch_takes_nothing_back() -> None:
    """Within one leader epoch a follower's log only grows."""
    replicas = in_sync()
    replicas.note_fetch(2, 0, 5, 5, 1.0)
    replicas.note_fetch(2, 0, 3, 5, 2.0)
    assert replicas.log_end_offset(2) == 5


@given(st.lists(st.tuples(st.sampled_from((2, 3)), st.integers(0, 20), st.booleans()), max_size=30))
def test_committed_is_never_above_any_member_that_may_count(
    events: list[tuple[int, int, bool]],
) -> None:
    """Whatever happens, no member of any ISR that may be in force lacks a committed offset."""
    replicas = in_sync()
    in_force = [{1, 2, 3}]
    for now_s, (follower, offset, changes) in enumerate(events):
        replicas.note_fetch(follower, 0, offset, 20, float(now_s))
        if changes:
            isr = wanted(replicas, end=20, now_s=100.0 + now_s)
            replicas.begin_change(isr)
            in_force.append(set(isr))
            if offset % 2:
                replicas.settle(isr)
                in_force = [set(isr)]
        committed = replicas.committed_offset(20)
        for isr_set in in_force:
            for member in isr_set - {1}:
                assert committed <= max(replicas.log_end_offset(member), UNKNOWN_OFFSET)


@given(
    st.lists(st.tuples(st.sampled_from((2, 3)), st.integers(0, 9)), max_size=6),
    st.sampled_from([(1,), (1, 2), (2, 1, 3), (1, 2, 3)]),
    st.integers(0, 9),
    st.sampled_from([None, (1, 2), (1, 2, 3)]),
    st.floats(0, 1e6),
)
def test_time_changes_nothing_while_all_are_level(
    fetches: list[tuple[int, int]],
    isr: tuple[int, ...],
    end: int,
    changing: tuple[int, ...] | None,
    now_s: float,
) -> None:
    """So the clock passes such a partition over; whoever has not fetched in this epoch, or lacks a record, is not level."""
    replicas = in_sync(isr)
    for broker_id, offset in fetches:
        replicas.note_fetch(broker_id, 0, min(offset, end), end, 1.0)
    if changing is not None:
        replicas.begin_change(changing)
    has_all = {one for one in (2, 3) if replicas.log_end_offset(one) >= end}
    is_level = replicas.is_level(end)
    assert is_level == (changing is None and len(isr) == 3 and has_all == {2, 3})
    if is_level:
        assert wanted(replicas, end=end, high_watermark=end, now_s=now_s) == isr
