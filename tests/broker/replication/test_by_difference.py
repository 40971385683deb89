"""Replication by difference and by whole lists end in the same logs, high watermarks and ISRs, whatever happens."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from echoless.broker.native import replica_session
from echoless.broker.replication import fetcher, follower
from echoless.broker.replication.follower import Follower
from echoless.protocol.errors import DecodeError
from echoless.protocol.native.replica_session import NAMED_MAX
from echoless.protocol.native.replication import ReplicaFetched
from tests.broker.replication.two_brokers import LAG_MAX_S, SETTLES_S, Brokers
from tests.simulation.virtual_loop import VirtualLoop

PARTITIONS = 3
INDEX = st.integers(0, PARTITIONS - 1)
BROKER = st.sampled_from([1, 2])
LATE = st.sampled_from([None, 1, 2])
Event = tuple[str, tuple[Any, ...]]


def event(name: str, *arguments: st.SearchStrategy[Any]) -> st.SearchStrategy[Event]:
    return st.tuples(st.just(name), st.tuples(*arguments))


EVENTS = st.one_of(
    event("append", INDEX),
    event("append", INDEX),
    event("delete", INDEX),
    event("move", INDEX, LATE),
    event("lead_again", INDEX, LATE),
    event("there_and_back", INDEX),
    event("reassign", INDEX),
    event("restart", BROKER, st.integers(0, 3), st.sampled_from([0.0, 0.3, 2.0])),
    event("doubt", BROKER),
    event("break_connections"),
    event("run", st.sampled_from([0.0003, 0.001, 0.1, 1.0, 2 * LAG_MAX_S])),
)


@contextmanager
def brokers(
    seed: int = 0, partitions: int = PARTITIONS, *, whole_lists: bool = False
) -> Iterator[Brokers]:
    """Two brokers in sync, whose callbacks never fail."""
    failures: list[BaseException] = []
    with VirtualLoop(Random(seed), lambda _, error: failures.append(error)) as loop:
        both = Brokers(loop, Random(seed), partitions, whole_lists=whole_lists)
        both.run(5.0)
        assert not failures, failures
        yield both
        if failures:
            raise failures[0]


@given(st.lists(EVENTS, max_size=8), st.integers(0, 1000))
def test_both_ways_end_alike(events: list[Event], seed: int) -> None:
    """Each event is followed by a calm in which all is copied: after it both have the same."""
    pictures = []
    for whole_lists in (False, True):
        with brokers(seed, whole_lists=whole_lists) as both:
            seen = [both.picture()]
            for name, arguments in events:
                getattr(both, name)(*arguments)
                both.run(SETTLES_S)
                assert both.is_level() == []
                seen.append(both.picture())
            pictures.append(seen)
    assert pictures[0] == pictures[1]


@given(st.lists(EVENTS, max_size=30), st.integers(0, 1000))
def test_nothing_is_claimed_that_is_not_there(events: list[Event], seed: int) -> None:
    """Messages and answers are lost, repeated, late and reordered; afterwards all logs are level."""
    assert play(events, seed) == []


def play(events: list[Event], seed: int, *, whole_lists: bool = False) -> list[str]:
    with brokers(seed, whole_lists=whole_lists) as both:
        both.is_stormy = True
        for name, arguments in events:
            getattr(both, name)(*arguments)
            both.run(0.01)
        both.is_stormy = False
        both.run(SETTLES_S)
        return both.is_level()


def test_silence_keeps_followers_in_sync() -> None:
    """The first append after a long idle time finds them caught up, before any fetch."""
    with brokers(partitions=1) as both:
        both.run(3 * LAG_MAX_S)
        both.append(0)
        both.sides[1].isr_changes.consider_all()
        both.run(0)
        assert both.states[0].isr == (1, 2)


def test_the_end_of_a_session_takes_nothing_back() -> None:
    """The same where the connection was lost, and the next session has not been opened yet."""
    with brokers(partitions=1) as both:
        both.run(3 * LAG_MAX_S)
        both.sides[1].fetches.sessions._by_broker[2].end()
        both.append(0)
        both.sides[1].isr_changes.consider_all()
        both.run(0)
        assert both.states[0].isr == (1, 2)


def test_what_is_not_followed_any_more_is_forgotten_though_the_message_is_lost() -> None:
    """A leader keeps no row of a partition that moved away while its follower could not say so."""
    with brokers(partitions=1) as both:
        both.append(0)
        both.run(1)
        both.is_cut = True
        both.run(1)  # the fetch under way has ended
        both.move(0)
        both.run(1)
        both.is_cut = False
        both.run(SETTLES_S)
        assert both.is_level() == []
        assert not both.sides[2].fetchers._by_leader[1]._has_work


def test_silence_in_a_doubt_is_excused() -> None:
    """The leader was paused, say: the first append after it finds followers in time that it could not hear."""
    with brokers(partitions=1) as both:
        both.run(3 * LAG_MAX_S)
        both.is_cut, both.session_timeout_s = True, 10 * LAG_MAX_S
        both.run(1)
        both.sides[1].begin_doubt()
        both.run(LAG_MAX_S)
        both.sides[1].end_doubt()
        both.append(0)
        both.sides[1].isr_changes.consider_all()
        both.run(1)
        assert both.states[0].isr == (1, 2)
        both.run(2 * LAG_MAX_S)
        assert both.states[0].isr == (1,)


def test_a_dead_follower_leaves_in_time() -> None:
    """Whoever is not heard lags from the first append on that it misses, as long as it may."""
    with brokers(partitions=1) as both:
        both.run(3 * LAG_MAX_S)
        both.sides[2].stop()
        both.run(1)
        both.append(0)
        both.run(LAG_MAX_S - 1.5)
        assert both.states[0].isr == (1, 2)
        both.run(LAG_MAX_S)
        assert both.states[0].isr == (1,)


def test_a_follower_that_is_stuck_leaves_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its messages go on, but say nothing of what it cannot take: silence counts only where it is level."""
    with brokers(partitions=1) as both:
        monkeypatch.setattr(Follower, "take", refuse)
        both.run(LAG_MAX_S)
        both.append(0)
        both.run(2 * LAG_MAX_S)
        assert both.states[0].isr == (1,)
        monkeypatch.undo()
        both.run(SETTLES_S)
        assert both.is_level() == []


def refuse(*_: object) -> None:
    raise DecodeError("the test says so")


def test_an_append_is_sent_at_once_and_once() -> None:
    """Not after the wait, and not again while the first copy is on its way."""
    with brokers(partitions=1) as both, counted_rows(both) as count:
        for _ in range(3):
            both.append(0)
        both.run(0.01)
        assert both.sides[1].partitions[0].high_watermark == 3
        assert count()["take"] == 1
        for step in range(10):
            both.append(0)
            both.run(0.0002 * step)
        both.run(0.1)
        assert both.is_level() == ["0: the follower knows 12 of 13"]
        both.run(0.5)
        assert both.is_level() == []


def test_busy_partitions_take_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """An answer with room for one batch begins with the partition that has waited longest."""
    monkeypatch.setattr(fetcher, "BYTES_MAX", 1)
    taken: list[int] = []
    take = Follower.take

    def note(self: Follower, fetched: ReplicaFetched, now_ms: int) -> Any:
        if fetched.batches:
            taken.append(self.partition.index)
        return take(self, fetched, now_ms)

    monkeypatch.setattr(Follower, "take", note)
    with brokers(partitions=4) as both:
        for _ in range(10):
            both.append(0)
            both.append(2)
        both.run(1)
        assert both.is_level() == []
    assert sorted(taken) == [0] * 10 + [2] * 10
    assert all(abs(taken[:end].count(0) - taken[:end].count(2)) <= 1 for end in range(20))


def test_a_refused_row_does_not_make_both_brokers_busy() -> None:
    """The leader has not been notified of its epoch: it is asked again now and then, and nothing is answered in between."""
    with brokers(partitions=1) as both:
        both.lead_again(0, late=1)
        before = both.messages
        both.run(0.9)
        assert both.messages - before < 50
        both.run(SETTLES_S)
        assert both.is_level() == []


def test_a_new_partition_ends_the_wait() -> None:
    """It is named at once, in the session that is there: the rows that it has are not named again."""
    with brokers(partitions=100) as both, counted_rows(both) as count:
        both.lead_again(0)
        both.run(0.1)
        assert both.sides[2].partitions[0].log.leader_epochs is not None
        assert both.sides[1].partitions[0].in_sync is not None
        assert both.sides[1].partitions[0].in_sync.log_end_offset(2) == 0
        assert count()["wanted"] == 1


def test_many_partitions_are_named_in_pieces() -> None:
    """A message names a bounded number; the next one follows at once."""
    with brokers(partitions=4 * NAMED_MAX) as both:
        assert both.is_level() == []


def test_deleted_partitions_leave_no_rows() -> None:
    """The end of a role takes its row out, with an error that the follower may ignore."""
    with brokers(partitions=1) as both:
        both.sides[1].partitions[0].resign()
        both.sides[2].fetchers.lost(both.sides[2].partitions[0])
        both.run(1)
        assert len(both.sides[1].fetches.sessions) == 0


def test_idle_partitions_cost_nothing() -> None:
    """Twenty records of one partition have as many rows looked at beside 2,000 idle ones as beside none.

    While nothing is sent, sessions look at no row at all, on either side.
    """
    looks = []
    for partitions in (1, 2001):
        with brokers(partitions=partitions) as both:
            both.run(5)
            with counted_rows(both) as count:
                both.run(5)
                assert count() == {}
                for _ in range(20):
                    both.append(0)
                    both.run(0.1)
                both.run(1)
            looks.append(count())
            assert both.is_level() == []
    assert looks[0] == looks[1]
    assert looks[0]["read_further"] >= 20


class CountedRows(dict[Any, Any]):
    """Rows of one side of a session; each that a walk or a question gets is counted."""

    def __init__(self, rows: Mapping[Any, Any], look: Callable[[], None]) -> None:
        super().__init__(rows)
        self._look = look

    def __iter__(self) -> Iterator[Any]:
        for key in super().__iter__():
            self._look()
            yield key

    def values(self) -> Any:
        return [self[key] for key in self]

    def items(self) -> Any:
        return [(key, self[key]) for key in self]

    def get(self, key: Any, default: Any = None) -> Any:
        self._look()
        return super().get(key, default)


@contextmanager
def counted_rows(both: Brokers) -> Iterator[Callable[[], dict[str, int]]]:
    """Rows that a leader compares and reads, and that a follower names and takes; and looks at all that there are."""
    found: dict[str, int] = {}

    def note(name: str) -> None:
        found[name] = found.get(name, 0) + 1

    def counting(owner: Any, name: str) -> None:
        original = getattr(owner, name)

        def counted(*arguments: Any) -> Any:
            note(name)
            return original(*arguments)

        patch.setattr(owner, name, counted)

    def looking(owner: Any, name: str) -> None:
        rows = CountedRows(getattr(owner, name), lambda: note(name))
        patch.setattr(owner, name, rows)

    with pytest.MonkeyPatch.context() as patch:
        for side in both.sides.values():
            for session in side.fetches.sessions._by_broker.values():
                looking(session, "rows")
                looking(session, "_row_of")
            for one in side.fetchers._by_leader.values():
                looking(one._followed, "_by_name")
        counting(replica_session, "fetch_as_replica")
        counting(replica_session, "read_further")
        counting(follower.Follower, "wanted")
        counting(follower.Follower, "take")
        yield lambda: found
