"""Figures of a batch: rows, repeats, requests to the ledger, waits for brokers.

Spark has no place for figures of a Python sink in a query's progress. So tasks report theirs to the driver, which logs a line
for each batch, keeps the sum in `ExactlyOnceSink.metrics`, and writes it into the file with which the ledger completes the
batch: no request more.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Final, NamedTuple, Self

from echoless.pipeline.exactly_once.ledger_files import LedgerFiles

METRICS_LOGGER: Final = "echoless.spark.metrics"
_LOG: Final = logging.getLogger(METRICS_LOGGER)


class TaskCosts(NamedTuple):
    """Costs of one attempt of a task, besides its rows."""

    ledger_requests: int = 0
    broker_wait_s: float = 0.0


@dataclass(slots=True, frozen=True, kw_only=True)
class BatchMetrics:
    """Figures of one run of a batch."""

    batch_id: int
    tasks: int
    """Number of tasks with rows."""
    rows: int
    repeats: int
    """Number of these rows that an earlier attempt had stored."""
    ledger_requests: int
    """Requests of these tasks and of the driver, without those that end the tasks after the batch is complete."""
    broker_wait_s: float
    """Seconds that tasks waited for brokers, in all."""

    def log(self, sink: str) -> None:
        """Logs them in one line at INFO."""
        _LOG.info(
            "sink %s, batch %d: %s rows of %d tasks, %s of them stored before; %s ledger requests, %.3f s of waiting "
            "for brokers",
            sink,
            self.batch_id,
            f"{self.rows:,}",
            self.tasks,
            f"{self.repeats:,}",
            f"{self.ledger_requests:,}",
            self.broker_wait_s,
        )

    def recorded(self) -> dict[str, Any]:
        """Returns them as the ledger has them, without the batch's number and that of tasks, which it knows."""
        return {name: value for name, value in asdict(self).items() if name not in _KNOWN}


_KNOWN: Final = ("batch_id", "tasks")


def recorded_metrics(batch_id: int, found: Mapping[str, Any]) -> BatchMetrics | None:
    """Returns the metrics in the file of a complete batch; None: a version without them has written it."""
    names = [one.name for one in fields(BatchMetrics) if one.name != "batch_id"]
    if not found.keys() >= set(names):
        return None
    return BatchMetrics(batch_id=batch_id, **{name: found[name] for name in names})


def total(
    batch_id: int, tasks: Iterable[tuple[int, int, TaskCosts]], driver_requests: int
) -> BatchMetrics:
    """Adds up rows, repeats and costs of the tasks with rows, and the driver's requests."""
    own = list(tasks)
    return BatchMetrics(
        batch_id=batch_id,
        tasks=len(own),
        rows=sum(rows for rows, _, _ in own),
        repeats=sum(repeats for _, repeats, _ in own),
        ledger_requests=driver_requests + sum(costs.ledger_requests for _, _, costs in own),
        broker_wait_s=round(sum(costs.broker_wait_s for _, _, costs in own), 3),
    )


class CountedFiles:
    """Files of a ledger whose requests are counted. Any thread may call it."""

    def __init__(self, files: LedgerFiles) -> None:
        self._files = files
        self._lock = threading.Lock()
        self.requests = 0
        """Number of requests so far."""

    def list(self, directory: str) -> list[str]:
        self._count()
        return self._files.list(directory)

    def read(self, name: str) -> bytes:
        self._count()
        return self._files.read(name)

    def find(self, name: str) -> bytes | None:
        self._count()
        return self._files.find(name)

    def create(self, name: str, data: bytes) -> bool:
        self._count()
        return self._files.create(name, data)

    def delete(self, name: str) -> None:
        self._count()
        self._files.delete(name)

    def _count(self) -> None:
        with self._lock:
            self.requests += 1


class BrokerWaits:
    """Time that one thread waits for brokers: what happens in `with` blocks of it."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._since = 0.0

    def __enter__(self) -> Self:
        self._since = time.perf_counter()
        return self

    def __exit__(self, *_: object) -> None:
        self.seconds += time.perf_counter() - self._since
