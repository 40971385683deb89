"""The session guard: never a proof of a session that the server may have ended."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Coroutine, Sequence
from random import Random
from typing import Any, NamedTuple

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from echoless.broker.tree.node_tree import ConnectionLostError, Operation
from echoless.broker.tree.session_guard import SessionGuard
from tests.fakes.memory_node_tree import MemoryNodeTree, MemoryTree
from tests.simulation.virtual_loop import VirtualLoop

TIMEOUT_S = 6.0
PATH = "/brokers/ids/1"


def run(main: Coroutine[Any, Any, None]) -> None:
    """Runs it to its end in virtual time; what any task raises is raised here."""
    errors: list[BaseException] = []
    loop = VirtualLoop(Random(0), lambda _, error: errors.append(error))
    with loop:
        task = loop.create_task(main)
        assert loop.run_until(math.inf, task.done)
    for error in errors:
        raise error


class Tree(MemoryNodeTree):
    """A client on a slow network: requests and answers take `delay_s` each."""

    def __init__(self, server: MemoryTree) -> None:
        super().__init__(server)
        self.session_timeout_s = TIMEOUT_S
        self.delay_s = 0.0
        self.probe_count = 0

    async def multi(self, operations: Sequence[Operation]) -> None:
        self.probe_count += 1
        delay_s = self.delay_s
        await asyncio.sleep(delay_s)
        try:
            await super().multi(operations)
        finally:
            await asyncio.sleep(delay_s)


class Guarded:
    """A guard that runs, and how often it has doubted."""

    def __init__(self) -> None:
        self.tree = Tree(MemoryTree())
        self.guard = SessionGuard(self.tree, PATH)
        self.doubts: list[float] = []
        self.proofs: list[float] = []
        self.cancel_doubt = self.guard.on_doubt(self._doubt)
        self.guard.on_proof(self._proof)
        self.task = asyncio.create_task(self.guard.run())

    def _doubt(self) -> None:
        assert not self.guard.is_proved
        self.doubts.append(asyncio.get_running_loop().time())

    def _proof(self) -> None:
        assert self.guard.is_proved
        self.proofs.append(asyncio.get_running_loop().time())


def test_answers_prove_the_session() -> None:
    """Without a proof first, then without a gap; no doubt comes up."""

    async def main() -> None:
        one = Guarded()
        assert not one.guard.is_proved
        await asyncio.sleep(0.001)
        for _ in range(100):
            assert one.guard.is_proved
            await asyncio.sleep(TIMEOUT_S / 17)
        assert one.doubts == []

    run(main())


def test_a_proof_ends_in_time_and_is_doubted_once() -> None:
    """Well before the session can end, and well after one lost probe; answers prove again."""

    async def main() -> None:
        one = Guarded()
        await asyncio.sleep(5 * TIMEOUT_S)
        silent_since = asyncio.get_running_loop().time()
        one.tree.suspend()
        await asyncio.sleep(3 * TIMEOUT_S)
        (doubted,) = one.doubts
        assert TIMEOUT_S * 0.4 < doubted - silent_since < TIMEOUT_S * 0.6
        one.tree.resume()
        await asyncio.sleep(TIMEOUT_S / 2)
        assert one.guard.is_proved
        first, second = one.proofs
        assert first < doubted < second
        one.cancel_doubt()
        one.tree.suspend()
        await asyncio.sleep(TIMEOUT_S)
        assert not one.guard.is_proved
        assert len(one.doubts) == 1

    run(main())


def test_a_late_answer_proves_nothing() -> None:
    """The doubt does not wait for the answer, which counts from when it was asked for."""

    async def main() -> None:
        one = Guarded()
        await asyncio.sleep(1.1 * TIMEOUT_S)
        one.tree.delay_s = 2 * TIMEOUT_S
        await asyncio.sleep(2 * TIMEOUT_S)
        assert len(one.doubts) == 1
        one.tree.delay_s = 0
        await asyncio.sleep(2.1 * TIMEOUT_S)
        assert not one.guard.is_proved
        await asyncio.sleep(TIMEOUT_S / 2)
        assert one.guard.is_proved

    run(main())


def test_a_session_may_be_proved_long_after_the_guard_was_made() -> None:
    """The owner says when it begins to count; answers that came before count then."""

    async def main() -> None:
        tree = Tree(MemoryTree())
        guard = SessionGuard(tree, PATH)
        tree.expire_session()
        asyncio.create_task(guard.run())  # noqa: RUF006 - ends with the loop
        await asyncio.sleep(0.001)
        tree.reconnect()
        await asyncio.sleep(10 * TIMEOUT_S)
        assert not guard.is_proved
        guard.restart()
        await asyncio.sleep(0.001)
        assert guard.is_proved

    run(main())


def test_a_lost_session_is_doubted_at_once() -> None:
    """The next one is proved only when the owner says that it counts."""

    async def main() -> None:
        one = Guarded()
        await asyncio.sleep(0.001)
        one.tree.expire_session()
        await asyncio.sleep(0)
        assert not one.guard.is_proved
        assert len(one.doubts) == 1
        one.tree.reconnect()
        await asyncio.sleep(TIMEOUT_S)
        assert not one.guard.is_proved
        one.guard.restart()
        assert not one.guard.is_proved
        await asyncio.sleep(0.001)
        assert one.guard.is_proved
        assert len(one.doubts) == 1

    run(main())


def test_a_restart_leaves_no_proof_of_the_session_before() -> None:
    """It holds even if the loss of the session was not noticed."""

    async def main() -> None:
        one = Guarded()
        await asyncio.sleep(0.001)
        one.tree._session_id += 1
        one.guard.restart()
        assert not one.guard.is_proved
        one.guard.restart()
        await asyncio.sleep(0.001)
        assert one.guard.is_proved

    run(main())


def test_without_probes_there_is_no_proof() -> None:
    """A stopped guard leaves no doubt: no one asks any more."""

    async def main() -> None:
        one = Guarded()
        await asyncio.sleep(0.001)
        one.task.cancel()
        await asyncio.gather(one.task, return_exceptions=True)
        assert not one.guard.is_proved
        await asyncio.sleep(TIMEOUT_S)
        assert one.doubts == []

    run(main())


async def test_an_endless_session_is_always_proved() -> None:
    """The embedded coordinator lives as long as the broker: no probe, no doubt."""
    tree = MemoryTree().connect()
    guard = SessionGuard(tree, PATH)
    assert guard.is_proved
    await guard.run()
    assert guard.is_proved


class Probe(NamedTuple):
    """The fate of one probe, in thirds of the timeout."""

    up: float
    down: float
    arrives: bool
    is_answered: bool
    """Else the connection breaks after all that time."""


PROBES = st.builds(
    Probe,
    st.floats(0, 1) | st.just(0.01),
    st.floats(0, 1) | st.just(0.01),
    st.integers(0, 3).map(bool),
    st.integers(0, 4).map(bool),
)


class Ensemble(MemoryNodeTree):
    """The cruellest servers that ZooKeeper's rules allow.

    The client's server reports its sessions to the deciding one only twice a tick, and from
    `cut_off_at` on not at all; the deciding server ends the session at the earliest possible
    moment, by a clock that runs fast.
    """

    def __init__(self, probes: Sequence[Probe], cut_off_at: float, phase: float) -> None:
        super().__init__(MemoryTree())
        self.session_timeout_s = TIMEOUT_S
        self._probes = list(probes)
        self._loop = asyncio.get_running_loop()
        self._begin = self._loop.time()
        self._cut_off_at = self._begin + cut_off_at
        self._phase = phase * self._report_interval_s
        # The session is asked for, which the deciding server itself does.
        self._heard_at = [self._begin]

    _report_interval_s = TIMEOUT_S / 4

    def has_ended(self, now: float) -> bool:
        """Whether the session may be over."""
        reported = self._last_report(min(now, self._cut_off_at))
        heard = max(at for at in self._heard_at if at <= max(reported, self._heard_at[0]))
        return now >= heard + TIMEOUT_S * 0.95

    def _last_report(self, at: float) -> float:
        interval = self._report_interval_s
        return at - (at - self._begin + self._phase) % interval

    async def multi(self, operations: Sequence[Operation]) -> None:
        probe = self._probes.pop(0) if self._probes else Probe(0.01, 0.01, True, True)
        await asyncio.sleep(probe.up * TIMEOUT_S / 3)
        now = self._loop.time()
        is_decided = probe.arrives and now < self._cut_off_at and not self.has_ended(now)
        if is_decided:
            self._heard_at.append(now)
        await asyncio.sleep(probe.down * TIMEOUT_S / 3)
        if not is_decided or not probe.is_answered:
            raise ConnectionLostError("no answer")


@given(
    probes=st.lists(PROBES, max_size=12),
    cut_off_at=st.floats(0, 4 * TIMEOUT_S),
    phase=st.floats(0, 1),
    restarts=st.lists(st.floats(0, 5 * TIMEOUT_S), max_size=4),
)
@example(  # found by the simulation: silent for most of the timeout, and registered a moment before the end
    probes=[Probe(0.01, 0.01, True, True), Probe(1, 1, False, False)],
    cut_off_at=5.56,
    phase=0,
    restarts=[5.4],
)
def test_no_proof_outlives_the_session(
    probes: list[Probe], cut_off_at: float, phase: float, restarts: list[float]
) -> None:
    """At every moment: if the guard says proved, no server can have ended the session.

    However often its owner registers again: a client may be connected, and not have been heard of for long.
    """

    async def main() -> None:
        loop = asyncio.get_running_loop()
        tree = Ensemble(probes, cut_off_at, phase)
        guard = SessionGuard(tree, PATH)
        asyncio.create_task(guard.run())  # noqa: RUF006 - ends with the loop
        for restart_s in restarts:
            loop.call_later(restart_s, guard.restart)
        end = loop.time() + 6 * TIMEOUT_S
        was_proved = False
        while loop.time() < end:
            was_proved |= guard.is_proved
            assert not (guard.is_proved and tree.has_ended(loop.time())), loop.time()
            await asyncio.sleep(TIMEOUT_S / 97)
        assert not guard.is_proved
        assert was_proved or probes or cut_off_at < 1

    run(main())


def test_probes_are_few() -> None:
    """Eight in a timeout: each is a write of the coordinator."""

    async def main() -> None:
        one = Guarded()
        await asyncio.sleep(10 * TIMEOUT_S)
        assert one.tree.probe_count == pytest.approx(80, abs=2)

    run(main())
