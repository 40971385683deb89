"""One run of an ingest: the batches that are planned and not done, then new files, then files that arrive later.

Batches are written in a thread, so that the main thread can show progress and handle signals.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as NotDoneError
from dataclasses import dataclass

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from echoless.pipeline.exactly_once.errors import SinkError
from echoless.pipeline.ingest.plan import FileBatch, IngestPlan, check_in_order, check_unchanged
from echoless.pipeline.ingest.rows import to_records
from echoless.pipeline.ingest.settings import IngestError, IngestSettings
from echoless.pipeline.ingest.source import (
    find_schema,
    list_again,
    list_files,
    read_batch,
    require_reader,
)
from echoless.pipeline.streaming.counted_writer import CountedWriter
from echoless.pipeline.streaming.explanation import explain
from echoless.pipeline.streaming.job import Job
from echoless.pipeline.streaming.run import TICK_S, StreamError


@dataclass(slots=True, frozen=True, kw_only=True)
class Ingest:
    """A run over some paths."""

    session: SparkSession
    plan: IngestPlan
    settings: IngestSettings
    paths: Sequence[str]
    watch_s: float | None
    """Seconds between two searches for new files; None: the run ends when all files are done."""

    def run(self, job: Job, writer: CountedWriter) -> None:
        """Writes batches until all are done or the run is stopped. Raises `StreamError`."""
        with ThreadPoolExecutor(max_workers=1) as executor:
            try:
                self._wait(job, executor.submit(self._work, job, writer))
            except (IngestError, SinkError) as error:
                raise StreamError(str(error)) from error
            except (PySparkException, Py4JJavaError) as error:
                raise StreamError(explain(error)) from error
            finally:
                job.stop.make()

    def _wait(self, job: Job, work: Future[None]) -> None:
        while True:
            try:
                work.result(TICK_S)
                return
            except NotDoneError:
                if work.done():
                    work.result()  # whose own error it may be: a server did not answer in time
                    return
                job.line.update()

    def _work(self, job: Job, writer: CountedWriter) -> None:
        settings = self.plan.agree(self.settings)
        require_reader(self.session, self.settings.format)
        self.plan.refresh()
        if self.plan.done:
            job.say(
                f"continues: {self.plan.done} batches are done, {len(self.plan.batches) - self.plan.done} are planned"
            )
        while not job.stop.is_made:
            self._plan_new()
            while (batch := self.plan.next_batch()) is not None and not job.stop.is_made:
                self._show(job)
                settings = settings or self._begin(batch)
                self._write(batch, settings, writer)
                job.figures.bytes_done += sum(one.bytes for one in batch.files)
            self._show(job)
            if self.watch_s is None or job.stop.wait(self.watch_s):
                return

    def _show(self, job: Job) -> None:
        job.figures.lag = {"files": self.plan.files_waiting}
        job.figures.bytes_left = self.plan.bytes_waiting

    def _plan_new(self) -> None:
        self.plan.add(list_files(self.session, self.paths), self.settings)

    def _begin(self, first: FileBatch) -> IngestSettings:
        """Records the settings of all runs, with the columns of the first files; returns them."""
        self.settings.check_reader_options()  # an ingest that has begun goes on: it was given them by an earlier version
        found = self.settings.schema or find_schema(self.session, self.settings, first)
        return self.plan.begin(self.settings.with_schema(found))

    def _write(self, batch: FileBatch, settings: IngestSettings, writer: CountedWriter) -> None:
        check_in_order(batch, settings)
        check_unchanged(batch, list_again(self.session, batch))
        rows = to_records(read_batch(self.session, settings, batch), settings)
        writer.write(rows, batch.number)
        check_unchanged(batch, list_again(self.session, batch))
        self.plan.finish(batch)
