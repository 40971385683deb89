"""Sink and reader where the program has no session in its own process: Spark Connect, and Declarative Pipelines, which use it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.pipeline.connect_job import ROWS
from tests.pipeline.exactly_once.attempts import PARTITIONS, TOPIC
from tests.pipeline.exactly_once.broker_thread import BrokerThread
from tests.pipeline.tools import SPARK_CONNECT
from tests.support.echoless import REPOSITORY, SOURCES
from tests.toolchain import require

_TIMEOUT_S = 900

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.time_limit(_TIMEOUT_S + 60)]


def run(command: list[str], directory: Path) -> str:
    """Runs it to its end, with Spark Connect's client on the path; returns what it has printed."""
    require("java", "spark-connect")
    path = os.pathsep.join(map(str, (SOURCES, REPOSITORY, SPARK_CONNECT)))
    variables = {
        "PYTHONPATH": path,
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    done = subprocess.run(
        command,
        env={**os.environ, **variables},
        cwd=directory,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=_TIMEOUT_S,
        check=False,
    )
    return f"{done.stdout}\nended with {done.returncode}"


def stored(broker: BrokerThread, topic: str = TOPIC) -> list[str]:
    return sorted(str(one, "utf-8") for one in broker.values(topic, PARTITIONS) if one)


def rows_of(*ways: str) -> list[str]:
    return sorted(f"{way}-{row}" for way in ways for row in range(ROWS))


def test_the_data_source_works_through_connect(broker: BrokerThread, tmp_path: Path) -> None:
    """Streams, jobs, and batches of a stream as jobs; `ExactlyOnceSink` names them. The reader reads them as a job and as a stream."""
    broker.create("copy", PARTITIONS)
    module = ["-m", "tests.pipeline.connect_job", broker.address, str(tmp_path)]
    printed = run([sys.executable, *module], tmp_path)
    outcomes = [one for one in printed.splitlines() if one.startswith(("wrote: ", "refused: "))]
    assert outcomes == [
        *("wrote: stream", "wrote: job", "wrote: each batch as a job"),
        *("wrote: read as a job", "wrote: read as a stream"),
        "refused: ExactlyOnceSink",
    ], printed
    assert "within foreachBatch register(frame.sparkSession)" in printed, printed
    assert stored(broker) == stored(broker, "copy") == rows_of("stream", "job", "each")
