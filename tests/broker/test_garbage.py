"""Thousands of partitions are kept out of garbage collections, and are freed without one."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from pathlib import Path

import pytest

from broker.garbage import FROZEN_FROM, Freezer
from broker.metadata.topic import NewTopic
from tests.support.in_process import in_process


@pytest.fixture
def without_collections() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.unfreeze()
    gc.enable()


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
