"""Leased producer ids on one replica: kept for their time, whatever else is configured."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from echoless.protocol.dedup import Duplicate, Reject
from echoless.protocol.errors import ErrorCode
from echoless.protocol.leases import LEASED_ID_END, LEASED_ID_MIN, is_leased, leased_id
from echoless.storage.appended import Appended
from echoless.storage.producers.snapshot import decode_snapshot, encode_snapshot
from echoless.storage.producers.state import ProducerStates
from tests.storage.one_log import NOW_MS, SMALL, OneLog
from tests.storage.producers.test_state import entry_at

EXPIRATION_MS, LEASED_MS, PRODUCERS_MAX = 100, 1000, 3
LEASED = leased_id(7)
CONFIG = replace(
    SMALL, producer_id_expiration_ms=100, leased_producer_expiration_ms=1000, producers_max=2
)

ids = st.integers(0, 9) | st.integers(0, 9).map(leased_id)
steps = st.one_of(
    st.tuples(st.just("put"), ids),
    st.tuples(st.just("wait"), st.integers(0, 600)),
    st.tuples(st.just("expire"), st.just(0)),
    st.tuples(st.just("snapshot"), st.just(0)),
    st.tuples(st.just("window"), st.integers(1, 4)),
)


@given(st.lists(steps, max_size=60))
def test_a_leased_id_is_never_forgotten_before_its_time(steps: list[tuple[str, int]]) -> None:
    """Nor any other later than before: leases take nothing from the bound and from expiry."""
    states = ProducerStates(5, EXPIRATION_MS, PRODUCERS_MAX, LEASED_MS)
    now_ms, appended = 0, dict[int, int]()
    for step, argument in steps:
        if step == "put":
            states.put(argument, entry_at(now_ms))
            appended.pop(argument, None)
            appended[argument] = now_ms
        elif step == "wait":
            now_ms += argument
        elif step == "expire":
            states.expire(now_ms)
            for one, at_ms in list(appended.items()):
                if now_ms - at_ms >= (LEASED_MS if is_leased(one) else EXPIRATION_MS):
                    del appended[one]
        elif step == "snapshot":
            decode_snapshot(encode_snapshot(0, states)).load_into(states)
        else:
            states.reconfigure(window=argument)
        for one in [one for one in appended if not is_leased(one)][:-PRODUCERS_MAX]:
            del appended[one]
        assert {one for one, _ in states.items()} == appended.keys()
        assert len(states) == len(appended)
        assert all((states.get(one) is not None) == (one in appended) for one in [*range(10)])
        times = [entry.last_append_ms for _, entry in states.items()]
        assert all(older <= newer for older, newer in pairwise(times))


def test_the_longer_time_counts() -> None:
    """Leasing an id never makes it shorter-lived than the others."""
    states = ProducerStates(expiration_ms=5000, leased_expiration_ms=1000)
    states.put(LEASED, entry_at(0))
    assert states.expire(4999) == 0
    assert states.expire(5000) == 1


def test_one_sweep_is_bounded_over_both_kinds() -> None:
    """`count_max` bounds the two together."""
    states = ProducerStates(expiration_ms=1, leased_expiration_ms=1)
    for number in range(5):
        states.put(number, entry_at(0))
        states.put(leased_id(number), entry_at(0))
    assert [states.expire(10, count_max=4) for _ in range(4)] == [4, 4, 2, 0]
    assert states.expired_total == 10


@pytest.mark.parametrize(
    ("producer_id", "expected"),
    [
        (0, False),
        (LEASED_ID_MIN - 1, False),
        (LEASED_ID_MIN, True),
        (LEASED_ID_END - 1, True),
        (LEASED_ID_END, False),
        (LEASED_ID_END + LEASED_ID_MIN, True),
        (2**63 - 1, True),
        (2**63 - 1 - LEASED_ID_MIN, False),
    ],
)
def test_which_ids_are_leased(producer_id: int, expected: bool) -> None:
    """Bit 52 says so, whatever the tag of a principal around it."""
    assert is_leased(producer_id) == expected


def roll_and_kill(one: OneLog) -> None:
    """Leaves only a snapshot of the producers before the last segment."""
    one.log.roll()
    one.log.flush()
    one.open()


RESTARTS: list[Callable[[OneLog], object]] = [
    lambda one: None,
    OneLog.open,
    OneLog.close_and_open,
    roll_and_kill,
]


@pytest.mark.parametrize("restart", RESTARTS, ids=["running", "killed", "closed", "rolled"])
def test_a_resend_behind_the_end_of_the_lease_is_a_repeat(
    restart: Callable[[OneLog], object],
) -> None:
    """Until the margin is over, over any restart, with shorter expiration and with crowds."""
    one = OneLog(CONFIG)
    one.append(producer_id=LEASED, sequence=0, now_ms=NOW_MS)
    for other in range(5):
        one.append(producer_id=other, now_ms=NOW_MS)
    restart(one)
    one.log.expire_producers(NOW_MS + 999)
    assert isinstance(one.append(producer_id=LEASED, sequence=0, now_ms=NOW_MS + 999), Duplicate)
    assert isinstance(one.append(producer_id=LEASED, sequence=1, now_ms=NOW_MS + 999), Appended)


def test_what_is_resent_when_the_margin_is_over() -> None:
    """The state is gone: a later sequence is refused; the first would be stored again.

    The client has stopped before (`client/lease.py`). The newest batch may be kept a little longer.
    """
    one = OneLog(replace(CONFIG, forgotten_producers_max=0))
    one.append(producer_id=LEASED, sequence=0, now_ms=NOW_MS)
    one.append(producer_id=LEASED, sequence=1, now_ms=NOW_MS)
    assert one.log.expire_producers(NOW_MS + 1000) == 1
    refused = one.append(producer_id=LEASED, sequence=1, now_ms=NOW_MS + 1000)
    assert isinstance(refused, Reject)
    assert refused.code is ErrorCode.UNKNOWN_PRODUCER_ID


def test_a_follower_and_a_fresh_replica_keep_it_too() -> None:
    """Batches and snapshots are all that they get."""
    leader, follower, fresh = OneLog(CONFIG), OneLog(CONFIG), OneLog(CONFIG)
    leader.append(producer_id=LEASED, sequence=0, now_ms=NOW_MS)
    follower.log.append_replicated(leader.log.read(0, 10_000, 1), NOW_MS)
    snapshot = encode_snapshot(1, leader.log.producers)
    fresh.log.reset_to(1, snapshot, clock_ahead_ms=60_000, now_ms=NOW_MS + 60_000)
    for replica, ahead_ms in ((follower, 0), (fresh, 60_000)):
        for other in range(5):
            replica.append(producer_id=other, now_ms=NOW_MS + ahead_ms)
        replica.log.expire_producers(NOW_MS + 999 + ahead_ms)
        again = replica.append(producer_id=LEASED, sequence=0, now_ms=NOW_MS + 999 + ahead_ms)
        assert isinstance(again, Duplicate)
        replica.log.expire_producers(NOW_MS + 1000 + ahead_ms)
        assert LEASED not in dict(replica.log.producers.items())
