"""Who waits for an offset is woken when it is reached, and not before."""

from __future__ import annotations

import gc

import pytest

from broker.partitions.waiters import OffsetWaiters


async def test_reached_wakes_the_low_and_leaves_the_high():
    """Everything at or below the offset is done, everything above waits on."""
    waiters = OffsetWaiters()
    futures = {offset: waiters.wait_for(offset) for offset in (5, 3, 9, 5)}
    waiters.reached(5)
    assert {offset: future.done() for offset, future in futures.items()} == {
        5: True,
        3: True,
        9: False,
    }


async def test_a_cancelled_wait_is_passed_over():
    """A client that gave up does not stop the others from being woken."""
    waiters = OffsetWaiters()
    gone, waiting = waiters.wait_for(1), waiters.wait_for(2)
    gone.cancel()
    waiters.reached(2)
    assert waiting.done()


async def test_failure_reaches_everybody_once():
    """After a failure nobody waits; later waits are new ones."""
    waiters = OffsetWaiters()
    future = waiters.wait_for(1)
    waiters.fail(RuntimeError("leadership lost"))
    with pytest.raises(RuntimeError, match="leadership lost"):
        await future
    assert not waiters.wait_for(1).done()


async def test_abandoned_waits_take_no_memory():
    """A thousand clients that gave up leave nothing, whatever waits beside them."""
    waiters = OffsetWaiters()
    waiting = waiters.wait_for(7)
    for offset in range(1000):
        waiters.abandon(waiters.wait_for(offset))
        assert len(waiters) <= 2
    waiters.reached(6)
    assert not waiting.done()
    waiters.reached(7)
    assert waiting.done()


async def test_a_failure_that_no_one_waits_for_is_not_logged(caplog):
    """A client that is gone when leadership ends leaves no traceback."""
    waiters = OffsetWaiters()
    waiters.wait_for(1)
    waiters.fail(RuntimeError("leadership lost"))
    gc.collect()
    assert not caplog.records
