"""Which leased id a batch goes under, over time: the rules of `client/lease.py`."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from echoless.client.lease import Lease, PartitionLeases, lease
from echoless.client.sequenced_batch import Identity

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
HOUR_S = 3600.0


def day_lease(producer_id: int = 1, asked_at: float = 0.0) -> Lease:
    """24 h, and remembered for one more."""
    return lease(
        Identity(producer_id, 0), asked_at=asked_at, lease_ms=DAY_MS, retention_ms=25 * HOUR_MS
    )


def test_a_day_is_renewed_an_hour_before() -> None:
    """Resends end half an hour after it, while brokers remember for an hour."""
    one = day_lease(asked_at=100.0)
    assert one.renew_at == pytest.approx(100.0 + 23 * HOUR_S)
    assert one.ends_at == 100.0 + 24 * HOUR_S
    assert one.resend_until == 100.0 + 24.5 * HOUR_S


def test_a_partition_without_a_lease_wants_one_at_once() -> None:
    """It has none for a batch until one is granted."""
    leases = PartitionLeases()
    assert leases.wants_lease(0.0)
    assert leases.for_new_batch(0.0, has_outstanding=False) is None
    leases.grant(day_lease())
    assert not leases.wants_lease(0.0)
    assert leases.for_new_batch(0.0, has_outstanding=False) == day_lease()


def test_the_next_lease_is_asked_for_before_the_end() -> None:
    """It is requested at the named share of the time, not before."""
    leases = PartitionLeases()
    leases.grant(day_lease())
    at = leases.wants_lease_at
    assert not leases.wants_lease(at - 1)
    assert leases.wants_lease(at)


def test_the_next_id_waits_until_nothing_is_outstanding() -> None:
    """A batch that must be resent would otherwise be stored after its successors."""
    leases = PartitionLeases()
    first, second = day_lease(1), day_lease(2, asked_at=23 * HOUR_S)
    leases.grant(first)
    assert leases.for_new_batch(0.0, has_outstanding=False) == first
    leases.grant(second)
    now = 23 * HOUR_S + 1
    assert leases.for_new_batch(now, has_outstanding=True) is None
    assert first.may_resend(now)
    assert leases.for_new_batch(now, has_outstanding=False) == second
    assert leases.for_new_batch(now, has_outstanding=True) == second


def test_without_another_lease_the_present_one_goes_on_to_its_end() -> None:
    """After that nothing new begins, however long no one answers."""
    leases = PartitionLeases()
    leases.grant(day_lease())
    end = day_lease().ends_at
    assert leases.for_new_batch(end - 0.001, has_outstanding=True) == day_lease()
    assert leases.for_new_batch(end, has_outstanding=False) is None
    assert leases.wants_lease(end)


def test_a_resend_goes_on_behind_the_end() -> None:
    """It keeps its id until half of the margin is over, and then it is not sent any more."""
    one = day_lease()
    assert one.may_resend(one.ends_at)
    assert one.may_resend(one.resend_until - 0.001)
    assert not one.may_resend(one.resend_until)


steps = st.lists(
    st.one_of(
        st.tuples(st.just("wait"), st.integers(0, 30_000)),
        st.tuples(st.just("answer"), st.integers(0, 5_000)),
        st.tuples(st.just("send"), st.just(0)),
        st.tuples(st.just("settle"), st.just(0)),
        st.tuples(st.just("resend"), st.just(0)),
    ),
    max_size=80,
)


@given(steps, st.integers(1, 20_000), st.integers(0, 10_000), st.data())
def test_no_id_is_used_behind_what_brokers_promise(
    steps: list[tuple[str, int]], lease_ms: int, margin_ms: int, data: st.DataObject
) -> None:
    """New batches within the lease as issued, resends within its margin, one id at a time."""
    leases = PartitionLeases()
    now_ms = 0
    issued_ms: dict[int, int] = {}
    outstanding: list[Lease] = []
    used: list[int] = []
    for step, argument in steps:
        now = now_ms / 1000
        if step == "wait":
            now_ms += argument
        elif step == "answer" and leases.wants_lease(now):
            producer_id = len(issued_ms)
            issued_ms[producer_id] = now_ms + data.draw(st.integers(0, argument))
            now_ms += argument
            leases.grant(
                lease(
                    Identity(producer_id, 0),
                    asked_at=now,
                    lease_ms=lease_ms,
                    retention_ms=lease_ms + margin_ms,
                )
            )
        elif step == "send":
            chosen = leases.for_new_batch(now, has_outstanding=bool(outstanding))
            if chosen is not None:
                producer_id = chosen.identity.producer_id
                assert now_ms <= issued_ms[producer_id] + lease_ms
                assert {one.identity for one in outstanding} <= {chosen.identity}
                assert not used or producer_id >= used[-1], "an old id came back"
                used.append(producer_id)
                outstanding.append(chosen)
        elif step == "settle":
            outstanding.clear()
        elif step == "resend":
            for one in outstanding:
                if one.may_resend(now):
                    kept_until = issued_ms[one.identity.producer_id] + lease_ms + margin_ms
                    assert now_ms <= kept_until - margin_ms / 2
