"""Waiters for an offset are woken when it is reached, and not before."""

from __future__ import annotations

import asyncio
import gc

import pytest

from echoless.broker.partitions.waiters import EventWaiters, OffsetWaiters, Waiters


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
    """After a failure no one waits; later waits are new ones."""
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


async def test_an_event_wakes_all_that_waited_for_it_once():
    """They wake in order of arrival; removed, cancelled and later ones are left alone."""
    waiters, woken = EventWaiters(), []
    loop = asyncio.get_running_loop()
    futures = [loop.create_future() for _ in range(5)]
    for future in futures[:4]:
        waiters.add(future)
        future.add_done_callback(lambda one: woken.append(futures.index(one)))
    waiters.remove(futures[1])
    futures[2].cancel()
    waiters.wake()
    waiters.add(futures[4])
    await asyncio.sleep(0)
    assert woken == [2, 0, 3]
    assert not futures[1].done()
    assert not futures[4].done()
    assert len(waiters) == 1


async def test_a_failure_ends_every_wait_on_a_partition():
    """Produce requests get the error; fetches look again, and find it themselves."""
    waiters = Waiters()
    produces, fetches = ([asyncio.get_running_loop().create_future() for _ in "12"] for _ in "12")
    for offset_waiters, future in zip((waiters.commit, waiters.flush), produces, strict=True):
        offset_waiters.add(future, 5)
    waiters.data.add(fetches[0])
    waiters.append.add(fetches[1])
    waiters.fail(RuntimeError("leadership lost"))
    assert [str(future.exception()) for future in produces] == ["leadership lost"] * 2
    assert [future.result() for future in fetches] == [None] * 2


async def test_an_acknowledgement_waits_for_what_its_client_asked():
    """acks=-1 for the high watermark, acks=1 for this replica's disk; each can be abandoned."""
    waiters = Waiters()
    by_all, by_leader = (asyncio.get_running_loop().create_future() for _ in "12")
    waiters.commit.add(by_all, 1)
    waiters.flush.add(by_leader, 1)
    waiters.flush.reached(1)
    assert (by_all.done(), by_leader.done()) == (False, True)
    waiters.abandon(by_all, by_all=True)
    assert len(waiters.commit) == 0
