"""Requests that wait for an acknowledgement when the coordinator falls silent."""

from __future__ import annotations

from typing import Any

import pytest

from echoless.broker.cluster.leadership_doubt import LeadershipDoubt
from echoless.broker.config.loading import LogFlush
from echoless.broker.metrics import Metrics
from echoless.protocol.errors import ErrorCode, KafkaError
from tests.broker.partitions.led import Led


class Doubtful:
    """A partition that this broker leads, with a record that is not flushed yet, and its doubts."""

    def __init__(self, session_timeout_s: float) -> None:
        self.led = Led(LogFlush.COMMIT)
        self.led.append(0)
        isr_changes: Any = IsrChanges()
        self.doubt = LeadershipDoubt(
            {("orders", 0): self.led.partition},
            isr_changes,
            Metrics(),
            session_timeout_s=lambda: session_timeout_s,
        )

    def begin(self) -> None:
        self.led.fencing.is_proved = False
        self.doubt.begin()

    def end(self) -> None:
        self.led.fencing.is_proved = True
        self.doubt.end()


class IsrChanges:
    """Takes note of nothing."""

    def consider_all(self) -> None:
        """Does nothing."""


@pytest.mark.parametrize("waits_for", ["commit", "flush"])
async def test_who_waits_outlasts_a_short_doubt(waits_for: str) -> None:
    """The session lives, so no other broker has led; in the doubt itself nothing is acknowledged."""
    one = Doubtful(session_timeout_s=3600)
    waiting = getattr(one.led.partition.waiters, waits_for).wait_for(1)
    one.begin()
    one.led.flush()
    assert not waiting.done()
    one.end()
    await waiting


@pytest.mark.parametrize("waits_for", ["commit", "flush"])
async def test_who_waits_is_refused_in_a_long_doubt(waits_for: str) -> None:
    """The session may have ended by then: the client shall look for another leader."""
    one = Doubtful(session_timeout_s=0)
    waiting = getattr(one.led.partition.waiters, waits_for).wait_for(1)
    one.begin()
    with pytest.raises(KafkaError) as failure:
        await waiting
    assert failure.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER


async def test_a_doubt_that_has_ended_refuses_nothing() -> None:
    """Nor does a member that has left."""
    one = Doubtful(session_timeout_s=0)
    waiting = one.led.partition.waiters.commit.wait_for(1)
    one.begin()
    one.end()
    one.begin()
    one.doubt.close()
    one.led.fencing.is_proved = True
    one.led.flush()
    await waiting
