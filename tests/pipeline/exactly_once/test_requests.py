"""Requests of a batch grow with its tasks and their partitions, and not faster (`docs/sink.md`, "Requests")."""

from __future__ import annotations

import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from echoless.pipeline.exactly_once.batch_metrics import CountedFiles
from echoless.pipeline.exactly_once.partition_writer import write_partition
from tests.pipeline.exactly_once.attempts import TOPIC, Attempts, location, values_of
from tests.pipeline.exactly_once.broker_thread import BrokerThread

BATCHES = 3


class Requests:
    """Counts of one batch."""

    def __init__(self) -> None:
        self.ledger: Counter[str] = Counter()
        self.names = 0
        """Names in the answers to all lists."""

    @contextmanager
    def counted(self) -> Iterator[None]:
        """Counts what is asked of ledgers."""
        with pytest.MonkeyPatch.context() as patch:
            for name in ("list", "read", "find", "create", "delete"):
                patch.setattr(CountedFiles, name, self._counted(name, getattr(CountedFiles, name)))
            yield

    def _counted(self, name: str, call: Any) -> Any:
        def counting(files: CountedFiles, *arguments: Any) -> Any:
            self.ledger[name] += 1
            answer = call(files, *arguments)
            if name == "list":
                self.names += len(answer)
            return answer

        return counting


def rows_of(task: int, targets: int) -> Any:
    """One row for each of the partitions from that of the task's number on."""
    partitions = [(task + number) % targets for number in range(targets)]
    values = [values_of(task * 1000 + one) for one in partitions]
    return pa.record_batch({"partition": pa.array(partitions), "value": values})


def run_batch(attempts: Attempts, batch_id: int, tasks: int, targets: int) -> None:
    """Runs a batch, one task after the other."""
    done = [
        write_partition(
            attempts.options,
            location(batch_id, number, run=f"run {batch_id}"),
            [rows_of(number + batch_id * tasks, targets)],
        )
        for number in range(tasks)
    ]
    assert attempts.end_batch(*done)


def asked(broker: BrokerThread) -> Counter[str]:
    """Counts how often each API was asked for so far, the connections, and the bytes that were sent."""
    metrics = broker.running.broker.metrics
    more = {"connections": metrics.connections_accepted_total, "bytes": metrics.sent_bytes_total}
    return Counter({**metrics.requests, **more})


def measure(directory: Path, tasks: int, targets: int) -> tuple[Requests, Counter[str]]:
    """Returns the requests of the last of several batches to the ledger, and to brokers."""
    with BrokerThread(directory / "broker", num_partitions=targets) as broker:
        broker.create(TOPIC, targets)
        attempts = Attempts(broker, directory / "ledger")
        for batch_id in range(BATCHES):
            requests, before = Requests(), asked(broker)
            with requests.counted():
                run_batch(attempts, batch_id, tasks, targets)
        return requests, asked(broker) - before


PER_TASK = Counter({"list": 3, "find": 2, "create": 3, "read": 1})
"""Requests of a task and of its end to the ledger, in a batch after the first; each opens the ledger by one more."""
PER_TASK_AND_BROKER = {"metadata": 1}
PER_PROCESS_AND_BROKER = {"connections": 0, "list_offsets": 1, "describe_producers": 1}
NAMES_PER_TASK = 22


def test_requests_grow_with_tasks_and_with_nothing_else(tmp_path):
    """No task looks at the files of the others, and none at partitions that have nothing to do with it."""
    few, many = 2, 8
    (first, first_asked), (second, second_asked) = (
        measure(tmp_path / str(tasks), tasks, 2) for tasks in (few, many)
    )
    more = many - few
    assert second.ledger - first.ledger == {name: more * n for name, n in PER_TASK.items()}
    assert second.names - first.names <= more * NAMES_PER_TASK
    for api, count in PER_TASK_AND_BROKER.items():
        assert second_asked[api] - first_asked[api] == more * count, api
    for api, count in PER_PROCESS_AND_BROKER.items():
        assert (first_asked[api], second_asked[api]) == (count, count), api
    assert second_asked["produce"] - first_asked["produce"] <= more


def main() -> None:
    """`python -m tests.pipeline.exactly_once.test_requests TASKS PARTITIONS`: prints the counts."""
    with tempfile.TemporaryDirectory() as directory:
        requests, brokers = measure(Path(directory), *map(int, sys.argv[1:3]))
        print(sys.argv[1:3], dict(requests.ledger), "names:", requests.names, dict(brokers))


if __name__ == "__main__":
    main()
