"""The thread that waits for an ingest's work, without Spark."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

from echoless.pipeline.exactly_once.local_files import LocalFiles
from echoless.pipeline.ingest.plan import IngestPlan
from echoless.pipeline.ingest.run import Ingest
from echoless.pipeline.streaming.figures import StreamFigures
from echoless.pipeline.streaming.job import Job
from tests.pipeline.ingest.test_plan import SETTINGS


def test_a_server_that_does_not_answer_in_time_ends_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python has one `TimeoutError` for that and for work that is not done yet: the run would wait for ever."""
    ingest = Ingest(
        session=cast("Any", None),
        plan=IngestPlan(LocalFiles(tmp_path)),
        settings=SETTINGS,
        paths=[],
        watch_s=None,
    )

    def slow(*_: object) -> None:
        raise TimeoutError("the store did not answer")

    updates = []

    def note() -> None:
        updates.append(1)
        if len(updates) > 100:
            raise AssertionError("it waits for ever")

    monkeypatch.setattr(Ingest, "_work", slow)
    job = Job(kind="ingest", name="ingest", metrics_listen=None, figures=StreamFigures())

    def run(given: Job, writer: Any) -> None:
        monkeypatch.setattr(given.line, "update", note)
        ingest.run(given, writer)

    with pytest.raises(TimeoutError, match="the store did not answer"):
        job.run(run, cast("Callable[..., Any]", None))
