"""A sender's own timing, on a loop whose clock moves at every reading, and its stop."""

from __future__ import annotations

import asyncio
from random import Random

import pytest

from echoless.client.batch import Delivery
from echoless.client.cluster import NoLeaderError
from echoless.client.partition_sender import PartitionSender
from echoless.client.sequenced_batch import Identity
from echoless.client.sequencer_actions import Start
from echoless.client.settings import Settings
from echoless.client.surroundings import Surroundings
from echoless.protocol.records import Record
from tests.broker.until import until
from tests.simulation.virtual_loop import START_S, VirtualLoop

BACKOFF_S = 0.1
ATTEMPTS = 50
TICKS_PER_BACKOFF = [1.9, 2.3, 2.5, 3.7, 7.7]
"""With the first three a second reading of the clock misses the end of a back-off (6e23d4a)."""


class TickingLoop(VirtualLoop):
    """Every reading of the clock comes later than the one before, as on a busy machine."""

    def __init__(self, tick_s: float) -> None:
        self._tick_s = tick_s
        self._latest = START_S
        super().__init__(Random(0), self.raise_later)
        self.errors: list[BaseException] = []

    def raise_later(self, _process: object, error: BaseException) -> None:
        self.errors.append(error)

    def time(self) -> float:
        self._latest = max(self._latest, self._now) + self._tick_s
        self._now = self._latest
        return self._now


class NoLeaderYet:
    """A cluster without a leader, as the sender sees it; counts how often it is asked."""

    def __init__(self) -> None:
        self.attempts = 0

    def known_leader(self, _topic: str, _partition: int) -> None:
        return None

    async def leader(self, _topic: str, _partition: int) -> None:
        self.attempts += 1
        raise NoLeaderError("an election is under way")

    async def refresh(self, _topic: str) -> None:
        return


class LeaderLost(NoLeaderYet):
    """A cluster whose look-ups fail when they are allowed to."""

    def __init__(self) -> None:
        super().__init__()
        self.may_fail = asyncio.Event()

    async def leader(self, topic: str, partition: int) -> None:
        self.attempts += 1
        await self.may_fail.wait()
        raise NoLeaderError("its broker was killed")


def around_of(
    cluster: NoLeaderYet, settings: Settings, errors: list[BaseException]
) -> Surroundings:
    return Surroundings(
        cluster=cluster,  # type: ignore[arg-type]
        settings=settings,
        rng=Random(1),
        new_identity=asyncio.Future,  # never asked for
        leases=None,
        on_delivered=lambda _: None,
        on_failed=lambda _, error: errors.append(error),
        on_crash=errors.append,
    )


@pytest.mark.parametrize("ticks", TICKS_PER_BACKOFF)
def test_back_off_ends_when_it_is_over(ticks: float) -> None:
    """Although the clock moves between two looks at it: nothing sleeps until the delivery timeout."""
    with TickingLoop(BACKOFF_S / ticks) as loop:
        cluster = NoLeaderYet()
        settings = Settings(retry_backoff_s=BACKOFF_S, retry_backoff_max_s=BACKOFF_S)
        around = around_of(cluster, settings, loop.errors)
        sender = PartitionSender("t", 0, Start(identity=Identity(7, 0)), around)
        record = Record(-1, 1, None, b"v")
        sender.add([record], Delivery(loop.create_future(), 1, 22))
        end = loop.time() + 3 * BACKOFF_S * ATTEMPTS
        assert loop.run_until(end, lambda: cluster.attempts >= ATTEMPTS), cluster.attempts
        assert not loop.errors
        loop.create_task(sender.close())
        loop.run_until(end)


async def test_a_stop_ends_although_a_batch_finds_no_leader() -> None:
    """An abort stops the senders, also that of a batch whose leader is being looked up and cannot be reached."""
    cluster, errors = LeaderLost(), list[BaseException]()
    sender = PartitionSender(
        "t", 0, Start(identity=Identity(7, 0)), around_of(cluster, Settings(), errors)
    )
    delivery = Delivery(asyncio.get_running_loop().create_future(), 1, 22)
    sender.add([Record(-1, 1, None, b"v")], delivery)
    await until(lambda: cluster.attempts == 1)
    stopping = asyncio.create_task(sender.stop())
    await asyncio.sleep(0)  # it waits for the batch
    assert not stopping.done()
    cluster.may_fail.set()
    async with asyncio.timeout(60):
        await stopping
    await sender.close()
    assert not errors
