"""Clocks of brokers beside each other: who is ahead deletes nothing by time."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from echoless.broker.clock import CONFIRMATION_MS, NOT_COMPARED, Clock
from echoless.broker.cluster.peer_clocks import DIFFERENCE_MS_MAX, PeerClocks
from echoless.broker.replication.peers import PeerError

NOW_MS = 1_795_000_000_000
DAY_MS = 24 * 3_600_000
SUCCESS = {"code": 0, "name": "NONE", "message": "", "retriable": False}


class Brokers:
    """Broker 1, and others whose clocks are so far ahead of the right time; None: they do not answer."""

    def __init__(self, *others: int | None, own: int = 0, is_new: bool = False) -> None:
        self.others: list[int | None] = list(others)
        self.up_ms = 0
        self.own = own
        self.clock = Clock(lambda: NOW_MS + self.own + self.up_ms, lambda: self.up_ms, None)
        live = SimpleNamespace(brokers={1: None, **{2 + one: None for one in range(len(others))}})
        self.view: Any = SimpleNamespace(live=live, native_address=lambda one: one)
        self.clocks = PeerClocks(1, self.view, self, is_new_directory=is_new)  # type: ignore[arg-type]

    async def call(
        self, broker_id: int, _address: object, message: Mapping[str, Any], *, timeout_s: float
    ) -> dict[str, Any]:
        """Answers a hello."""
        assert message["type"] == "hello"
        ahead = self.others[broker_id - 2]
        if ahead is None:
            raise PeerError("cannot be reached", timeout_s)
        return {"error": SUCCESS, "clock_ms": NOW_MS + ahead + self.up_ms}

    async def look(self) -> int:
        """Compares; the time by which this broker deletes."""
        self.clock.set_doubt(await self.clocks.doubt(self.clock))
        return self.clock.deletion_ms()


@given(
    st.integers(-30 * DAY_MS, 30 * DAY_MS),
    st.lists(st.none() | st.integers(-30 * DAY_MS, 30 * DAY_MS), max_size=4),
)
def test_no_broker_deletes_by_a_clock_that_is_ahead(own: int, others: list[int | None]) -> None:
    """Whatever the clocks show, as long as one of those that answer is not ahead."""
    deletion_ms = asyncio.run(Brokers(*others, own=own).look())
    answered = [one for one in others if one is not None]
    assert deletion_ms <= NOW_MS + min(answered, default=own) + DIFFERENCE_MS_MAX


async def test_a_clock_that_agrees_or_is_behind_deletes(caplog: pytest.LogCaptureFixture) -> None:
    """A difference within the bound, and being behind, do no harm."""
    assert await Brokers(0, -DIFFERENCE_MS_MAX, 10 * DAY_MS).look() == NOW_MS
    assert not caplog.records


async def test_a_refusal_is_logged_once_and_names_the_remedy(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It says by how much, beside whom, what is not done, and what to do; then that it is over."""
    brokers = Brokers(0, 0, own=10 * DAY_MS)
    with caplog.at_level(logging.INFO):
        assert [await brokers.look() for _ in range(3)] == [0, 0, 0]
        brokers.others = [10 * DAY_MS, 10 * DAY_MS]
        assert await brokers.look() == NOW_MS + 10 * DAY_MS
    refused, over = caplog.records
    assert refused.levelno == logging.ERROR
    assert "10 days" in refused.getMessage()
    assert "set the clocks right" in refused.getMessage()
    assert "nothing is deleted by time" in refused.getMessage()
    assert "agree" in over.getMessage()


async def test_a_broker_that_was_compared_counts_while_it_is_down() -> None:
    """For an hour; the wrong one must not delete as soon as the others are gone."""
    brokers = Brokers(0, own=10 * DAY_MS)
    assert await brokers.look() == 0
    brokers.others = [None]
    brokers.up_ms = CONFIRMATION_MS
    assert await brokers.look() == 0
    assert brokers.clocks.ahead_ms == {2: 10 * DAY_MS}
    brokers.up_ms += 1
    assert await brokers.look() > 0
    assert brokers.clocks.ahead_ms == {}


async def test_a_new_directory_waits_for_a_comparison() -> None:
    """Nothing vouches for its clock: not even an earlier run."""
    brokers = Brokers(None, own=10 * DAY_MS, is_new=True)
    assert await brokers.look() == 0
    assert brokers.clock.doubt == NOT_COMPARED
    brokers.others = [10 * DAY_MS]
    assert await brokers.look() > 0
    alone = Brokers(None, is_new=True)
    assert await alone.look() == 0
    alone.up_ms = CONFIRMATION_MS
    assert await alone.look() > 0
    assert await Brokers(is_new=True).look() == NOW_MS
    assert await Brokers(None).look() == NOW_MS
