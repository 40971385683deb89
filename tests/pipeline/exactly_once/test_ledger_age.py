"""An old copy of a ledger is refused before a lane that it does not know stores a row."""

from __future__ import annotations

import random
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from echoless.pipeline.exactly_once.batch_metrics import CountedFiles
from echoless.pipeline.exactly_once.batch_record import BatchRecord
from echoless.pipeline.exactly_once.errors import SinkError
from echoless.pipeline.exactly_once.leader_queries import LeaderQueries
from echoless.pipeline.exactly_once.ledger import BATCHES_KEPT
from echoless.pipeline.exactly_once.ledger_identity import open_files
from echoless.pipeline.exactly_once.partition_writer import Attempted, write_partition
from tests.pipeline.exactly_once.attempts import (
    NAME,
    QUERY,
    Attempts,
    TaskDiedError,
    all_values,
    location,
    rows,
    rows_for,
)

OLD_COPY = "more records of producer .* than the ledger: the ledger is an old copy"


def begin(attempts: Attempts, batch_id: int, spark_partitions: int) -> None:
    """Records the batch as the driver does."""
    BatchRecord(open_files(attempts.options), NAME, QUERY, batch_id).agree(spark_partitions)


def write(attempts: Attempts, batch_id: int, number: int, own: Any, run: str = "1") -> Attempted:
    return write_partition(attempts.options, location(batch_id, number, run), [own])


def run_batch(attempts: Attempts, batch_id: int, tasks: Sequence[Any]) -> None:
    begin(attempts, batch_id, len(tasks))
    done = [write(attempts, batch_id, number, own) for number, own in enumerate(tasks)]
    assert attempts.end_batch(*done)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (rows(100), [rows(100, 100), rows(100, 200)]),
        (rows_for(0, 100, 0), [rows_for(1, 100, 100), rows_for(2, 100, 200)]),
    ],
    ids=["the partitions of before", "other partitions"],
)
def test_a_lane_that_the_copy_does_not_know_stores_nothing(
    attempts: Attempts, tmp_path: Path, first: Any, second: Sequence[Any]
) -> None:
    """Whichever task comes first: others than the one whose lane is known have no producer to compare."""
    run_batch(attempts, 0, [first])
    shutil.copytree(attempts.ledger, tmp_path / "copy")
    run_batch(attempts, 1, second)
    shutil.rmtree(attempts.ledger)
    shutil.copytree(tmp_path / "copy", attempts.ledger)
    begin(attempts, 1, len(second))
    for number in (1, 0):
        with pytest.raises(SinkError, match=OLD_COPY):
            write(attempts, 1, number, second[number], run="2")
    assert attempts.stored() == all_values(300)


@pytest.mark.parametrize("when", ["before", "meanwhile"])
def test_a_new_lane_begins_while_others_are_at_work(
    attempts: Attempts, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    """Their leaders have more records than the last batch, which a `begin` accounts for."""
    run_batch(attempts, 0, [rows(100)])
    begin(attempts, 1, 2)
    done: list[Attempted] = []
    if when == "before":
        done.append(write(attempts, 1, 0, rows(100, 100)))
    else:
        ask = LeaderQueries.ask_about_topics

        def write_first(leaders: LeaderQueries, topics: Sequence[str]) -> Any:
            done.append(write(attempts, 1, 0, rows(100, 100)))
            return ask(leaders, topics)

        monkeypatch.setattr(LeaderQueries, "ask_about_topics", write_first)
    done.append(write(attempts, 1, 1, rows(100, 200)))
    assert attempts.end_batch(*done)
    assert attempts.stored() == all_values(300)


def count_lists(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Counts the lists of each directory."""
    counts: Counter[str] = Counter()
    original: Callable[[CountedFiles, str], list[str]] = CountedFiles.list

    def counting(files: CountedFiles, directory: str) -> list[str]:
        counts[directory] += 1
        return original(files, directory)

    monkeypatch.setattr(CountedFiles, "list", counting)
    return counts


def test_a_run_compares_once(
    attempts: Attempts, broker: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In each process, however many of its lanes are new."""
    run_batch(attempts, 0, [rows(20)])
    begin(attempts, 1, 5)
    lists, asked = count_lists(monkeypatch), broker.running.broker.metrics.requests
    before = asked["describe_producers"]
    for number in range(1, 5):
        write(attempts, 1, number, rows(20, 20 * number))
    assert lists[f"{NAME}/partition-00000"] == 1
    assert asked["describe_producers"] == before + 1


def test_lanes_that_are_idle_for_long_are_not_read(
    attempts: Attempts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The records of the last batches say how many lanes there were."""
    run_batch(attempts, 0, [rows(5, 5 * number) for number in range(3)])
    for batch_id in range(1, BATCHES_KEPT + 2):
        run_batch(attempts, batch_id, [rows(5, 1000 + 5 * batch_id)])
    lists = count_lists(monkeypatch)
    begin(attempts, BATCHES_KEPT + 2, 4)
    write(attempts, BATCHES_KEPT + 2, 3, rows(5, 5000))
    assert lists[f"{NAME}/partition-00000"] == 1
    assert lists[f"{NAME}/partition-00001"] == 0


TASK_ROWS = 300
PIECES = 3


def pieces(first: int, count: int) -> Iterator[Any]:
    """Pieces of a task's rows; if they are not all, it dies after them."""
    for index in range(count):
        yield rows(TASK_ROWS // PIECES, first + index * TASK_ROWS // PIECES)
    if count < PIECES:
        raise TaskDiedError


def run_at_once(
    attempts: Attempts, batch_id: int, run: str, first: int, counts: Sequence[int]
) -> list[Attempted | Exception]:
    """Runs the tasks of a batch at the same time, each with so many pieces; returns what they ended with."""

    def task(number: int) -> Attempted | Exception:
        own = pieces(first + number * TASK_ROWS, counts[number])
        try:
            return write_partition(attempts.options, location(batch_id, number, run), own)
        except (TaskDiedError, SinkError) as error:
            return error

    with ThreadPoolExecutor(len(counts)) as threads:
        return list(threads.map(task, range(len(counts))))


@pytest.mark.slow
@pytest.mark.usefixtures("small_chunks")
@pytest.mark.parametrize("seed", range(2))
def test_only_old_copies_are_refused(attempts: Attempts, tmp_path: Path, seed: int) -> None:
    """Tasks at once, of which some lanes are new and some die; after each batch the copy from before it is put back."""
    dice = random.Random(seed)
    stored, copy, newest = 0, tmp_path / "copy", tmp_path / "newest"
    for batch_id in range(4):
        tasks = dice.randint(1, 5)
        run = partial(run_at_once, attempts, batch_id, first=stored)
        shutil.rmtree(copy, ignore_errors=True)
        if batch_id:
            shutil.copytree(attempts.ledger, copy)
        begin(attempts, batch_id, tasks)
        for number in range(dice.randint(0, 2)):
            found = run(run=f"{number}", counts=dice.choices(range(1, PIECES + 1), k=tasks))
            assert not [one for one in found if isinstance(one, SinkError)], found
        for number in range(3):  # tasks may be deferred, as others were too slow to be found again
            done = run(run=f"whole {number}", counts=[PIECES] * tasks)
            assert all(isinstance(one, Attempted) for one in done), done
            if attempts.end_batch(*(one for one in done if isinstance(one, Attempted))):
                break
        stored += tasks * TASK_ROWS
        assert attempts.stored() == all_values(stored)
        if batch_id:
            attempts.ledger.rename(newest)
            shutil.copytree(copy, attempts.ledger)
            begin(attempts, batch_id, tasks)
            for one in run(run="with the copy", counts=[PIECES] * tasks):
                assert isinstance(one, SinkError)
                assert "the ledger is an old copy" in str(one)
            assert attempts.stored() == all_values(stored)
            shutil.rmtree(attempts.ledger)
            newest.rename(attempts.ledger)
