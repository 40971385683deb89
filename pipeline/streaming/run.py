"""Running a stream until it is done, fails, or somebody asks it to stop.

The first SIGINT or SIGTERM lets the batch that is being written end, and stops before the next one. The
second ends the process at once, which does no harm: the sink takes the batch up again.
"""

from __future__ import annotations

import json
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any, Final, Protocol

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as f
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from pipeline.streaming.explanation import explain
from pipeline.streaming.figures import BatchFigures, Figures

TICK_S: Final = 1
_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


class Written(Protocol):
    """What a sink says of one Spark partition."""

    @property
    def rows(self) -> int: ...
    @property
    def rows_found(self) -> int: ...


Prepare = Callable[[DataFrame, int], DataFrame]
"""Makes rows for the sink of what the source gave."""
WriteBatch = Callable[[DataFrame, int], Sequence[Written]]


class StreamError(Exception):
    """A stream ended by an error; the message is fit for the terminal."""


class _StoppedError(Exception):
    """Raised into a batch that must not begin."""


class StreamRun:
    """One query from start to end."""

    def __init__(
        self,
        prepare: Prepare,
        write: WriteBatch,
        *,
        figures: Figures,
        on_tick: Callable[[], None],
        lag_of: Callable[[Any], dict[str, int]],
    ) -> None:
        """`on_tick`: called about once a second. `lag_of`: what waits, by a report of Spark's."""
        self._prepare = prepare
        self._write = write
        self._figures = figures
        self._on_tick = on_tick
        self._lag_of = lag_of
        self._is_stopping = threading.Event()

    def run(self, stream: DataStreamWriter) -> None:
        """Returns when the stream is done or was stopped. Raises `StreamError`."""
        with self._signals():
            query = stream.foreachBatch(self.write_batch).start()
            try:
                self._wait(query)
            except PySparkException as error:
                if not self._is_stopping.is_set():
                    raise StreamError(explain(error)) from error
            finally:
                with suppress(PySparkException):
                    query.stop()
            self._look(query)

    def stop(self) -> None:
        """From any thread."""
        self._is_stopping.set()

    def write_batch(self, frame: DataFrame, batch_id: int) -> None:
        """Spark calls this, in a thread of its own."""
        if self._is_stopping.is_set():
            raise _StoppedError("asked to stop")
        observation = Observation()
        size = f.coalesce(f.octet_length("key"), f.lit(0)) + f.coalesce(
            f.octet_length("value"), f.lit(0)
        )
        rows = self._prepare(frame, batch_id)
        counted = rows.observe(observation, f.sum(size).alias("bytes"))
        written = self._write(counted, batch_id)
        self._figures.add(
            BatchFigures(
                batch_id=batch_id,
                records=sum(part.rows for part in written),
                bytes=observation.get["bytes"] or 0,
                repeats=sum(part.rows_found for part in written),
            )
        )

    def _wait(self, query: StreamingQuery) -> None:
        while not query.awaitTermination(TICK_S):
            self._look(query)
            if self._is_stopping.is_set() and not query.status["isTriggerActive"]:
                return

    def _look(self, query: StreamingQuery) -> None:
        progress = query.lastProgress
        if progress is not None:
            self._figures.lag = self._lag_of(json.loads(progress.json))
        self._on_tick()

    @contextmanager
    def _signals(self) -> Iterator[None]:
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.signal(number, self._on_signal) for number in _SIGNALS}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002
        self.stop()
        for one in _SIGNALS:
            signal.signal(one, signal.SIG_DFL)
