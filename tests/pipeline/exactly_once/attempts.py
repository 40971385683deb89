"""Attempts at a batch, as Spark's tasks make them, without Spark; and ways for them to die."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from echoless.client.batch import now_ms
from echoless.pipeline.exactly_once.ends import TaskReport, end_batch
from echoless.pipeline.exactly_once.entries import Begin, End, decode_entry
from echoless.pipeline.exactly_once.ledger import TaskLocation
from echoless.pipeline.exactly_once.options import SinkOptions, read_options
from echoless.pipeline.exactly_once.partition_writer import Attempted, Written, write_partition
from tests.pipeline.exactly_once.broker_thread import BrokerThread

TOPIC = "orders"
PARTITIONS = 3
NAME = "sink"
QUERY = "query"
KEYS = 16
STORED_WITHIN_S = 120


class TaskDiedError(Exception):
    """The task is gone, wherever it was."""


class Attempts:
    """Attempts of one sink at its batches, against one broker."""

    def __init__(self, broker: BrokerThread, ledger: Path, **options: str) -> None:
        self.broker = broker
        self.ledger = ledger
        self.options: SinkOptions = read_options(
            {
                "kafka.bootstrap.servers": broker.address,
                "topic": TOPIC,
                "kafka.batch.size": "1000",
                **options,
            },
            name=NAME,
            ledger=str(ledger),
        )

    def run(
        self,
        batches: Iterable[Any],
        batch_id: int = 0,
        *,
        run: str = "",
        clock_ms: Callable[[], int] = now_ms,
    ) -> Written:
        """One that Spark says has been done."""
        attempted = write_partition(self.options, location(batch_id, run=run), batches, clock_ms)
        assert self.end_batch(attempted)
        return attempted.written

    def end_batch(self, *attempted: Attempted) -> bool:
        """Ends a batch as the driver does."""
        return end_batch(self.options, attempted[0].location, reports_of(attempted)) is not None

    def run_in_vain(self, batches: Iterable[Any], batch_id: int = 0) -> Attempted:
        """One whose task fails in the end, which it does not know."""
        return write_partition(self.options, location(batch_id), batches)

    def lose_batch(self, batch_id: int) -> None:
        """Makes the ledger a copy from before the batch."""
        for path in (*self._paths(batch_id), *self._task_files(batch_id)):
            path.unlink()

    def make_old(self) -> None:
        """Makes the ledger one of version 0.2: tasks are known by their numbers."""
        for path in self.ledger.rglob("tasks-*/*.json"):
            path.unlink()
        for path in self.ledger.rglob("partition-*/*.json"):
            fields = json.loads(path.read_text())
            fields.pop("origin", None)
            path.write_text(json.dumps(fields))

    def lose_end(self, batch_id: int = 0) -> None:
        """Undoes the last step, as if the attempt had died just before it."""
        path = self._paths(batch_id)[-1]
        assert isinstance(decode_entry(path.read_bytes()), End)
        path.unlink()
        for path in self._task_files(batch_id, "complete"):
            path.unlink()

    def begins(self, batch_id: int = 0) -> list[Begin]:
        entries = (decode_entry(path.read_bytes()) for path in self._paths(batch_id))
        return [entry for entry in entries if isinstance(entry, Begin)]

    def end(self, batch_id: int = 0) -> End:
        entry = decode_entry(self._paths(batch_id)[-1].read_bytes())
        assert isinstance(entry, End)
        return entry

    def die(self, *batches: Any, stored: int, batch_id: int = 0, run: str = "") -> None:
        """Runs an attempt with these batches that dies when this many rows are stored."""
        with pytest.raises(TaskDiedError):
            self.run(self._dying(batches, stored), batch_id, run=run)

    def _dying(self, batches: Iterable[Any], stored: int) -> Iterator[Any]:
        yield from batches
        self.wait_for_stored(stored)
        raise TaskDiedError

    def wait_for_stored(self, count: int) -> None:
        """Waits until this many rows are stored."""
        deadline = time.monotonic() + STORED_WITHIN_S
        while len(self.stored()) < count:
            assert time.monotonic() < deadline, f"fewer than {count} rows were stored in time"
            time.sleep(0.005)

    def stored(self) -> list[bytes | None]:
        """Sorted, because partitions have no order among each other."""
        return sorted(self.broker.values(TOPIC, PARTITIONS), key=lambda value: value or b"")

    def _paths(self, batch_id: int) -> list[Path]:
        return sorted((self.ledger / location(batch_id).directory).glob(f"batch-{batch_id:020}.*"))

    def _task_files(self, batch_id: int, kind: str = "*") -> list[Path]:
        return sorted((self.ledger / NAME).glob(f"tasks-*/batch-{batch_id:020}.{kind}.json"))


def location(batch_id: int = 0, spark_partition: int = 0, run: str = "") -> TaskLocation:
    return TaskLocation(NAME, QUERY, batch_id, spark_partition, run)


def reports_of(attempted: Iterable[Attempted]) -> list[TaskReport]:
    """Returns the reports of the tasks that had rows."""
    return [
        TaskReport(
            one.location,
            one.slot,
            one.end,
            one.is_deferred,
            *one.written[1:],
            one.costs,
            one.begins,
        )
        for one in attempted
        if one.slot is not None
    ]


def rows(count: int, first: int = 0, *, swapped: int | None = None) -> Any:
    """Rows with keys and values of their numbers; `swapped` and the next of its key change places."""
    numbers = list(range(first, first + count))
    if swapped is not None:
        other = swapped + KEYS
        numbers[swapped], numbers[other] = numbers[other], numbers[swapped]
    return pa.record_batch(
        {
            "key": [str(number % KEYS).encode() for number in numbers],
            "value": [values_of(number) for number in numbers],
        }
    )


def rows_for(partition: int, count: int, first: int) -> Any:
    """Rows that all go to one partition."""
    values = [values_of(number) for number in range(first, first + count)]
    return pa.record_batch({"partition": pa.array([partition] * count), "value": values})


def values_of(number: int) -> bytes:
    return f"value {number:07}".encode()


def all_values(count: int, first: int = 0) -> list[bytes]:
    return [values_of(number) for number in range(first, first + count)]
