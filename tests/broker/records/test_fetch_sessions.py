"""Which session goes when another needs its place, as Kafka has it; and that nothing is left of one that has."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from echoless.broker.metrics import Metrics
from echoless.broker.records import fetch_sessions
from echoless.broker.records.fetch_sessions import (
    EVICTABLE_AFTER_MS,
    FetchSession,
    FetchSessions,
    next_epoch,
)
from echoless.protocol.fetch_request import FetchPartition, FetchTopic, ForgottenTopic


class Cache:
    """Sessions, and a clock that is set by hand."""

    def __init__(self, slots: int) -> None:
        self.now_ms = 0
        self.metrics = Metrics()
        self.sessions = FetchSessions(
            slots, now_ms=lambda: self.now_ms, rng=Random(1), metrics=self.metrics
        )

    def open(self, rows: int = 1, *, is_follower: bool = False) -> FetchSession | None:
        session = self.sessions.new(is_follower=is_follower, uses_topic_ids=False)
        for row in topics(rows)[0].partitions:
            session.name_row("t", row)
        return session if self.sessions.add(session) else None

    def use(self, session: FetchSession, rows: int = 0) -> bool:
        return self.update(session, topics(rows))

    def update(
        self, session: FetchSession, named: list[FetchTopic], forgotten: Sequence[int] = ()
    ) -> bool:
        session.begin()
        for _ in session.update(named, [ForgottenTopic("t", forgotten)]):
            pass
        return self.sessions.settle(session)

    def has(self, session: FetchSession | None) -> bool:
        assert session is not None
        return self.sessions.find(session.id) is session


def topics(rows: int, name: str = "t") -> list[FetchTopic]:
    return [FetchTopic(name, [FetchPartition(index, 0, 1) for index in range(rows)])]


@pytest.fixture
def cache() -> Cache:
    return Cache(2)


@pytest.mark.parametrize("epoch", [1, 2, 2**31 - 2])
def test_epochs_follow_each_other(epoch: int) -> None:
    """1 comes after the largest."""
    assert next_epoch(epoch) == epoch + 1
    assert next_epoch(2**31 - 1) == 1


async def test_the_one_unused_for_longest_goes_first(cache: Cache) -> None:
    """If that is more than 120 s."""
    first, second = cache.open(9), cache.open(1)
    assert first is not None
    assert second is not None
    cache.now_ms = 1
    cache.use(first)
    cache.now_ms = EVICTABLE_AFTER_MS
    assert cache.open() is None
    cache.now_ms += 1
    assert cache.open() is not None
    assert (cache.has(first), cache.has(second)) == (True, False)
    assert cache.metrics.fetch_sessions_evicted_total == 1


@pytest.mark.parametrize(("rows", "goes"), [(3, False), (4, False), (5, True)])
async def test_a_consumers_gives_its_place_to_a_larger_one_when_it_is_old(
    cache: Cache, rows: int, goes: bool
) -> None:
    """The smallest of those used for more than 120 s is compared; with equal sizes it stays."""
    young, old = cache.open(1), cache.open(4)
    assert young is not None
    assert old is not None
    cache.now_ms = EVICTABLE_AFTER_MS + 1
    cache.use(old)
    cache.now_ms -= 1
    cache.use(young)
    assert (cache.open(rows) is not None) == goes
    assert (cache.has(young), cache.has(old)) == (True, not goes)


async def test_a_followers_takes_the_place_of_any_consumers(cache: Cache) -> None:
    """The smallest one's, however new; of followers', only of an old and not larger one."""
    small, large = cache.open(5), cache.open(9)
    assert cache.open(1, is_follower=True) is not None
    assert (cache.has(small), cache.has(large)) == (False, True)
    second = cache.open(7, is_follower=True)
    assert second is not None
    assert not cache.has(large)
    assert cache.open(99, is_follower=True) is None
    assert cache.open(99) is None
    cache.now_ms = EVICTABLE_AFTER_MS + 1
    cache.use(second)
    first = next(iter(cache.sessions._by_id.values()))
    cache.now_ms -= 1
    cache.use(first)
    assert cache.open(99) is None, "a consumer's is less than any follower's"
    assert cache.open(6, is_follower=True) is None
    assert cache.open(8, is_follower=True) is not None
    assert not cache.has(second)


def test_without_places_there_are_no_sessions() -> None:
    """Every request names all its rows."""
    cache = Cache(0)
    assert cache.sessions.is_declined
    assert cache.open() is None


async def test_the_rows_of_all_sessions_are_bounded(
    cache: Cache, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A new one goes without; one that grows ends; one that is unused gives way."""
    monkeypatch.setattr(fetch_sessions, "ROWS_MAX", 10)
    first = cache.open(6)
    assert first is not None
    assert cache.open(5) is None
    second = cache.open(4)
    assert second is not None
    assert not cache.use(second, 5)
    assert not cache.has(second)
    assert cache.sessions.rows == cache.metrics.fetch_session_rows == 6
    cache.now_ms = EVICTABLE_AFTER_MS + 1
    assert cache.open(11) is None
    assert cache.open(10) is not None
    assert cache.metrics.fetch_sessions == 1


def test_a_session_without_rows_ends(cache: Cache) -> None:
    """With the request that forgets the last one."""
    session = cache.open(2)
    assert session is not None
    assert cache.update(session, [], (0,))
    assert not cache.update(session, topics(1), (0, 1))
    assert not cache.has(session)


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["open", "follower", "use", "grow", "forget", "end", "wait"]),
            st.integers(0, 9),
        )
    )
)
def test_whatever_happens_the_counts_are_right(steps: list[tuple[str, int]]) -> None:
    """Sessions, rows and ranks, after each step."""
    cache = Cache(3)
    sessions = cache.sessions
    for what, number in steps:
        known = list(sessions._by_id.values())
        session = known[number % len(known)] if known else None
        if what in {"open", "follower"}:
            cache.open(number, is_follower=what == "follower")
        elif what == "wait":
            cache.now_ms += number * 30_000
        elif session is None:
            continue
        elif what == "end":
            sessions.end(session.id)
        elif what == "forget":
            cache.update(session, [], range(number))
        else:
            cache.use(session, number if what == "grow" else 0)
        live = list(sessions._by_id.values())
        assert len(live) == cache.metrics.fetch_sessions <= 3
        assert sum(map(len, live)) == sessions.rows == cache.metrics.fetch_session_rows
        assert sorted(sessions._old + sessions._young) == sorted(
            one.rank for one in live if one.ranks is not None
        )
        assert all(
            one.ranks is None or one.rank == (one.is_follower, len(one), one.id) for one in live
        )
