"""The mirror as a user runs it: killed, stopped, started twice."""

from __future__ import annotations

import re
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from echoless.testkit.admin import Admin
from echoless.testkit.faults import Faults
from tests.pipeline.mirror.source_records import PARTITIONS, produce
from tests.pipeline.pipeline_process import PipelineProcess
from tests.pipeline.stored_records import count_stored, stored_records
from tests.support.echoless import Echoless
from tests.toolchain import require

pytestmark = [pytest.mark.spark, pytest.mark.crash]

_RECORDS = 30_000


@pytest.fixture
def target_broker(tmp_path: Path) -> Iterator[Echoless]:
    """A broker in a separate process."""
    target = Echoless(tmp_path / "target")
    target.start()
    yield target
    target.kill()


@pytest.fixture
def clusters(tmp_path: Path, target_broker: Echoless) -> Iterator[tuple[str, str]]:
    """Source and target: brokers in separate processes; the source has records."""
    require("java", "spark-kafka")
    source = Echoless(tmp_path / "source", {"num_partitions": str(PARTITIONS)})
    source.start()
    produce(source.kafka_address, "orders", _RECORDS)
    yield source.kafka_address, target_broker.kafka_address
    source.kill()


def _arguments(clusters: tuple[str, str], checkpoint: Path, *more: str) -> tuple[str, ...]:
    source, target = clusters
    return (
        *("mirror", "--from", source, "--to", target, "--topics", "orders", "--create-topics"),
        *("--checkpoint", str(checkpoint), "--batch-records", "10000", *more),
    )


def _check_equal(clusters: tuple[str, str], count: int) -> None:
    """Each record once, in its partition, in order, with all that belongs to it."""
    found = 0
    for partition in range(PARTITIONS):
        wanted, stored = (stored_records(one, "orders", partition) for one in clusters)
        assert stored == wanted
        found += len(stored)
    assert found == count


def test_a_mirror_goes_on_after_its_driver_was_killed(
    clusters: tuple[str, str], target_broker: Echoless, tmp_path: Path
) -> None:
    """Killed in the middle and started again, it stores what was missing; SIGTERM ends it cleanly."""
    source, target = clusters
    arguments = _arguments(clusters, tmp_path / "checkpoint", "--metrics-listen", "127.0.0.1:0")
    faults = Faults(Admin(target_broker.admin_address))
    with (
        faults.rule("hold_request", match={"api": "produce", "topic": "orders"}, skip=4) as held,
        PipelineProcess(*arguments, directory=tmp_path / "first") as first,
    ):
        first.wait_until(lambda: held.held > 0)
        first.kill()
        first.wait_for_group()
    stored = count_stored(target, "orders", PARTITIONS)
    assert 0 < stored < _RECORDS, "it was to be killed before its end"
    with PipelineProcess(*arguments, directory=tmp_path / "second") as second:
        second.wait_until(lambda: count_stored(target, "orders", PARTITIONS) == _RECORDS)
        produce(source, "orders", 1000, first=_RECORDS)
        second.wait_until(lambda: count_stored(target, "orders", PARTITIONS) == _RECORDS + 1000)
        second.wait_until(lambda: _metric(second, "lag") == 0)
        assert _metric(second, "records_total") >= 1000
        assert second.terminate() == 0, second.output
    _check_equal(clusters, _RECORDS + 1000)


def _metric(process: PipelineProcess, name: str) -> float:
    """The sum over its labels; -1 where there is none yet."""
    (address,) = re.findall(r"metrics at (\S+)", process.output)
    with urllib.request.urlopen(address) as answer:
        text = answer.read().decode()
    found = re.findall(rf"^echoless_mirror_{name}{{.*}} (\S+)$", text, re.MULTILINE)
    return sum(map(float, found)) if found else -1


def test_two_mirrors_by_mistake_store_everything_once(
    clusters: tuple[str, str], tmp_path: Path
) -> None:
    """Two drivers on one checkpoint: one gives way or both end, and each record is there once."""
    arguments = _arguments(clusters, tmp_path / "checkpoint", "--once")
    with (
        PipelineProcess(*arguments, directory=tmp_path / "one") as one,
        PipelineProcess(*arguments, directory=tmp_path / "other") as other,
    ):
        statuses = [one.wait(), other.wait()]
    outputs = one.output + other.output
    assert 0 in statuses, outputs
    assert set(statuses) == {0} or "another run works with this checkpoint" in outputs, outputs
    _check_equal(clusters, _RECORDS)
