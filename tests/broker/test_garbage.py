"""Thousands of partitions are kept out of garbage collections, and are freed without one."""

from __future__ import annotations

import gc
import subprocess
import sys
import weakref
from collections.abc import Iterator
from pathlib import Path

import pytest

from echoless.broker.garbage import FROZEN_FROM, START_THRESHOLD, THRESHOLDS, Freezer, end_start
from echoless.broker.metadata.topic import NewTopic
from tests.support.in_process import in_process


@pytest.fixture
def without_collections() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.unfreeze()
    gc.enable()


@pytest.mark.slow
@pytest.mark.usefixtures("without_collections")
def test_many_new_partitions_are_frozen_and_few_are_not() -> None:
    """Each freeze keeps what is old garbage by then, so it must be worth it."""
    freezer, before = Freezer(), gc.get_freeze_count()
    freezer.made(FROZEN_FROM - 1)
    assert gc.get_freeze_count() == before
    freezer.made(1)
    assert gc.get_freeze_count() > before
    gc.unfreeze()
    freezer.made(FROZEN_FROM - 1)
    assert gc.get_freeze_count() == 0
    Freezer(3).made(3)
    assert gc.get_freeze_count() > 0


@pytest.mark.slow
@pytest.mark.usefixtures("without_collections")
async def test_a_deleted_partition_is_freed_without_a_collection(tmp_path: Path) -> None:
    """A frozen object that is part of a cycle would never be."""
    async with in_process(tmp_path) as running:
        topics, partitions = running.broker.services.topics, running.broker.services.partitions
        await topics.create(NewTopic(name="t", partitions=30))
        alive = weakref.WeakSet(partitions.held.values())
        logs = weakref.WeakSet(running.broker.logs.logs.values())
        assert len(alive) == len(logs) == 30
        topic = await topics.delete("t")
        await partitions.until_removed(topic)
        assert (len(alive), len(logs)) == (0, 0)


@pytest.mark.parametrize(
    "start",
    [
        "import runpy; runpy.run_module('echoless.broker', run_name='__main__')",
        "from echoless.cli.main import main; main(['serve', *sys.argv[1:]])",
    ],
    ids=["python -m echoless.broker", "echoless serve"],
)
def test_a_start_puts_collections_off(start: str) -> None:
    """They would go over the same modules again and again; here the start ends at a wrong option."""
    script = f"""
import atexit, gc, sys
loaded = []
gc.callbacks.append(lambda *_: loaded.append("echoless.broker.serve" in sys.modules))
atexit.register(lambda: print(gc.get_threshold()[0], any(loaded)))
{start}
"""
    ran = subprocess.run(
        [sys.executable, "-c", script, "--broker-id", "x"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.stdout.split() == [str(START_THRESHOLD), "False"], ran.stderr


@pytest.mark.slow
@pytest.mark.usefixtures("without_collections")
def test_the_end_of_a_start_freezes_what_it_has_made() -> None:
    """From then on there are collections, which leave it out."""
    before = gc.get_threshold()
    try:
        end_start()
        assert gc.get_threshold() == THRESHOLDS
        assert gc.get_freeze_count() > 0
    finally:
        gc.set_threshold(*before)
