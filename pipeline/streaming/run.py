"""A stream from start to end: until it is done, fails, or is asked to stop."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from echoless.pipeline.streaming.counted_writer import CountedWriter
from echoless.pipeline.streaming.explanation import explain
from echoless.pipeline.streaming.figures import StreamFigures
from echoless.pipeline.streaming.stop_request import StopRequest

TICK_S: Final = 1

Prepare = Callable[[DataFrame, int], DataFrame]
"""Turns a batch's rows from the source into rows for the sink."""


class StreamError(Exception):
    """A run ended with an error; the message is one line for the terminal."""


class _StoppedError(Exception):
    """Raised in a batch that must not begin."""


class StreamRun:
    """One query from start to end."""

    def __init__(
        self,
        prepare: Prepare,
        writer: CountedWriter,
        stop: StopRequest,
        *,
        figures: StreamFigures,
        on_tick: Callable[[], None],
        lag_of: Callable[[Any], dict[str, int]],
        on_resume: Callable[[int], None] = lambda _: None,
        on_written: Callable[[DataFrame, int], None] = lambda _, __: None,
    ) -> None:
        """`on_tick` is called about once a second; `lag_of` reads the lag in a progress report of Spark's.

        `on_resume` is called with the first batch of the run if it is not the query's first; `on_written` after each batch,
        before Spark can begin the next one.
        """
        self._on_resume: Callable[[int], None] | None = on_resume
        self._on_written = on_written
        self._prepare = prepare
        self._writer = writer
        self._stop = stop
        self._figures = figures
        self._on_tick = on_tick
        self._lag_of = lag_of

    def run(self, stream: DataStreamWriter) -> None:
        """Runs the stream until it is done or stopped. Raises `StreamError`."""
        try:
            query = stream.foreachBatch(self.write_batch).start()
        except (PySparkException, Py4JJavaError) as error:  # Java's if Spark has no class for it
            raise StreamError(explain(error)) from error
        try:
            self._wait(query)
        except PySparkException as error:
            if not self._stop.is_made:
                raise StreamError(explain(error)) from error
        finally:
            with suppress(PySparkException):
                query.stop()
        self._report(query)

    def write_batch(self, frame: DataFrame, batch_id: int) -> None:
        """Writes one batch; Spark calls this in a thread of its own."""
        if self._stop.is_made:
            raise _StoppedError("asked to stop")
        if self._on_resume is not None and batch_id:
            self._on_resume(batch_id)
        self._on_resume = None
        self._writer.write(self._prepare(frame, batch_id), batch_id)
        self._on_written(frame, batch_id)

    def _wait(self, query: StreamingQuery) -> None:
        while not query.awaitTermination(TICK_S):
            self._report(query)
            if self._stop.is_made and not query.status["isTriggerActive"]:
                return

    def _report(self, query: StreamingQuery) -> None:
        progress = query.lastProgress
        if progress is not None:
            self._figures.lag = self._lag_of(json.loads(progress.json))
        self._on_tick()
