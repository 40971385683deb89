"""Spark's own Kafka source with `kafka.isolation.level=read_committed`, on partitions that end in markers and aborted records."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.support.echoless import REPOSITORY, Echoless
from tests.toolchain import require
from tests.transactions.librdkafka import transactional

pytestmark = [pytest.mark.spark, pytest.mark.slow]

_TOPIC = "settled"
_WITHIN_S = 60.0
_SPARK_S = 240.0


def _write(bootstrap: str, partition: int, values: list[str], *, is_committed: bool) -> None:
    producer: Producer = transactional(bootstrap)
    producer.begin_transaction()
    for value in values:
        producer.produce(_TOPIC, value, partition=partition)
    assert producer.flush(_WITHIN_S) == 0
    if is_committed:
        producer.commit_transaction(_WITHIN_S)
    else:
        producer.abort_transaction(_WITHIN_S)


def test_batches_and_streams_are_given_what_is_committed(
    start_echoless: Callable[..., Echoless], tmp_path: Path
) -> None:
    """A marker at the end of a partition, an aborted range there, a partition of nothing else, and an open transaction: no row more, none less."""
    require("spark-kafka")
    bootstrap = start_echoless().kafka_address
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    admin.create_topics([NewTopic(_TOPIC, 4, 1)])[_TOPIC].result(_WITHIN_S)
    wanted = []
    for number in range(4):
        values = [f"committed-{number}-{one}" for one in range(5)]
        wanted += values
        _write(bootstrap, 0, values, is_committed=True)
        _write(bootstrap, 1, [f"aborted-{number}"] * 7, is_committed=False)
        values = [f"before-{number}-{one}" for one in range(3)]
        wanted += values
        _write(bootstrap, 2, values, is_committed=True)
        _write(bootstrap, 2, [f"aborted-{number}"] * 4, is_committed=False)
    _write(bootstrap, 3, ["before-it-opens"], is_committed=True)
    holder = transactional(bootstrap, "holder", timeout_ms=600_000)
    holder.begin_transaction()
    holder.produce(_TOPIC, "open", partition=3)
    assert holder.flush(_WITHIN_S) == 0
    wanted.append("before-it-opens")

    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "tests.applications.spark_committed",
            bootstrap,
            _TOPIC,
            str(tmp_path),
        ],
        capture_output=True,
        text=True,
        timeout=_SPARK_S,
        check=False,
        cwd=REPOSITORY,
        env={**os.environ, "PYSPARK_PYTHON": sys.executable},
    )
    assert done.returncode == 0, done.stderr[-4000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert sorted(found["batch"]) == sorted(wanted)
    assert sorted(found["stream"]) == sorted(wanted)
