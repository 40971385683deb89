"""The network: a connection keeps its order, whatever happens to the link."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from tests.simulation.network import CALM, Channel, Network
from tests.simulation.process import Process
from tests.simulation.virtual_loop import VirtualLoop


@pytest.mark.parametrize("seed", range(20))
def test_a_channel_keeps_its_order_over_cuts(seed: int) -> None:
    """Messages sent before, during and after a cut arrive in order, and after the cut."""
    with VirtualLoop(Random(seed), _no_error) as loop:  # type: ignore[abstract]
        network = Network(loop, Random(seed))
        network.weather = replace(CALM, delay_s=0.2, slow_probability=0.3, slow_s=1.0)
        channel = Channel(network, "a", "b", Process(loop, "b"))
        arrived: list[int] = []
        for number in range(60):
            channel.send(arrived.append, number)
            if number == 20:
                network.cut("a", "b")
                loop.run_until(loop.time() + 3)
                during = len(arrived)
            if number == 40:
                assert len(arrived) == during
                network.mend("a", "b")
            loop.run_until(loop.time() + 0.05)
        loop.run_until(loop.time() + 10)
        assert arrived == list(range(60))


def test_a_closed_channel_delivers_nothing() -> None:
    """Messages in transit are lost."""
    with VirtualLoop(Random(1), _no_error) as loop:  # type: ignore[abstract]
        network = Network(loop, Random(1))
        channel = Channel(network, "a", "b", Process(loop, "b"))
        arrived: list[int] = []
        channel.send(arrived.append, 1)
        channel.close()
        loop.run_until(loop.time() + 5)
        assert arrived == []


def _no_error(_owner: object, error: BaseException) -> None:
    raise AssertionError from error
