"""Attempts at once and one after the other, that die anywhere, with producers forgotten in between.

The dice are seeded; what the threads do with them is not, so a failure names what was rolled.
"""

from __future__ import annotations

import contextlib
import random
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from echoless.client.errors import DeliveryError
from echoless.pipeline.exactly_once.errors import SinkError
from tests.pipeline.exactly_once.attempts import TaskDiedError, all_values, rows

BATCHES = 12
BATCH_ROWS = 600
PIECE_ROWS = 100


def pieces(batch_id: int, count: int) -> Iterator[Any]:
    """Pieces of a batch; if they are not all, the task dies after them."""
    for index in range(count):
        yield rows(PIECE_ROWS, batch_id * BATCH_ROWS + index * PIECE_ROWS)
    if count * PIECE_ROWS < BATCH_ROWS:
        raise TaskDiedError


def attempt(attempts: Any, batch_id: int, count: int) -> None:
    """A twin may lose against another one: with an error, never with rows stored twice."""
    with contextlib.suppress(TaskDiedError, SinkError, DeliveryError):
        attempts.run(pieces(batch_id, count), batch_id=batch_id)


@pytest.mark.slow
@pytest.mark.usefixtures("small_chunks")
@pytest.mark.parametrize("seed", [1, 2])
def test_whatever_dies_each_row_is_stored_once(attempts, broker, seed):
    """Every batch ends with an undisturbed attempt."""
    dice = random.Random(seed)
    for batch_id in range(BATCHES):
        for _ in range(dice.randint(0, 3)):
            counts = [dice.randint(0, BATCH_ROWS // PIECE_ROWS) for _ in range(dice.randint(1, 3))]
            threads = [
                threading.Thread(target=attempt, args=(attempts, batch_id, count))
                for count in counts
            ]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            if dice.random() < 0.3:
                broker.forget_producers()
        attempts.run(pieces(batch_id, BATCH_ROWS // PIECE_ROWS), batch_id=batch_id)
        expected = all_values((batch_id + 1) * BATCH_ROWS)
        stored = attempts.stored()
        assert stored == expected, f"batch {batch_id}: {len(stored)} of {len(expected)} rows"
