"""The mirror that keeps its position in a group, as a user runs it: killed, started twice, used wrongly."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from typer.testing import CliRunner

from echoless.pipeline.commands import app
from echoless.testkit.admin import Admin
from echoless.testkit.faults import Faults
from tests.pipeline.mirror.source_records import PARTITIONS, produce
from tests.pipeline.pipeline_process import PipelineProcess
from tests.pipeline.stored_records import count_stored, stored_records
from tests.support.echoless import Echoless

_RECORDS = 15_000
_COMMAND = ("mirror", "--from", "127.0.0.1:1", "--to", "127.0.0.1:2", "--topics", "orders")


@pytest.fixture
def target(tmp_path: Path) -> Iterator[Echoless]:
    """A broker in a process of its own."""
    target = Echoless(tmp_path / "target")
    target.start()
    yield target
    target.kill()


@pytest.fixture
def clusters(tmp_path: Path, target: Echoless) -> Iterator[tuple[str, str]]:
    """Source and target; the source has records."""
    source = Echoless(tmp_path / "source", {"num_partitions": str(PARTITIONS)})
    source.start()
    produce(source.kafka_address, "orders", _RECORDS)
    yield source.kafka_address, target.kafka_address
    source.kill()


def mirror(clusters: tuple[str, str], directory: Path, *more: str) -> PipelineProcess:
    source, target = clusters
    return PipelineProcess(
        *("mirror", "--position", "group", "--from", source, "--to", target, "--create-topics"),
        *("--topics", "orders", "--batch-records", "1000", "--name", "copies", *more),
        directory=directory,
        uses_spark=False,
    )


def check_equal(clusters: tuple[str, str], count: int) -> None:
    """Each record once, in its partition, in order, with all that belongs to it."""
    found = 0
    for partition in range(PARTITIONS):
        wanted, stored = (stored_records(one, "orders", partition) for one in clusters)
        assert stored == wanted
        found += len(stored)
    assert found == count


@pytest.mark.slow
@pytest.mark.crash
def test_killed_and_doubled_mirrors_store_everything_once(
    clusters: tuple[str, str], target: Echoless, tmp_path: Path
) -> None:
    """One is killed in the middle; two others go on at once, follow the source, and end on SIGTERM."""
    source, address = clusters
    faults = Faults(Admin(target.admin_address))
    with (
        faults.rule("hold_request", match={"api": "produce", "topic": "orders"}, skip=9) as held,
        mirror(clusters, tmp_path / "first") as first,
    ):
        first.wait_until(lambda: held.held > 0)
        first.kill()
        first.wait_for_group()
    assert 0 < count_stored(address, "orders", PARTITIONS) < _RECORDS, "it was killed too late"
    with ExitStack() as stack:
        both = [stack.enter_context(mirror(clusters, tmp_path / name)) for name in ("a", "b")]
        produce(source, "orders", 1000, first=_RECORDS)
        both[0].wait_until(lambda: count_stored(address, "orders", PARTITIONS) == _RECORDS + 1000)
        for one in both:
            assert one.terminate() == 0, one.output
    check_equal(clusters, _RECORDS + 1000)
    with mirror(clusters, tmp_path / "once", "--once", "--starting-offsets", "none") as once:
        assert once.wait() == 0, once.output
        assert "copies: 0 records" in once.output
    check_equal(clusters, _RECORDS + 1000)


@pytest.mark.slow
def test_reset_group_is_refused_in_one_line(clusters: tuple[str, str], tmp_path: Path) -> None:
    """An offset without a state ends the mirror with 1 and the remedy."""
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": clusters[0], "group.id": "copies"})
    consumer.commit(offsets=[TopicPartition("orders", 0, 5)], asynchronous=False)
    consumer.close()
    with mirror(clusters, tmp_path / "refused") as refused:
        assert refused.wait() == 1
        assert "without a copier's state" in refused.output
        assert "--bare-offsets" in refused.output
        assert "Traceback" not in refused.output


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ((), "--checkpoint DIR is missing"),
        (("--position", "file", "--checkpoint", "c"), "not 'file'"),
        (("--position", "group", "--checkpoint", "c"), "not with --position group"),
        (("--position", "group", "--ledger", "l"), "not with --position group"),
        (("--position", "group", "--target-option", "topic=t"), "not with --position group"),
        (("--position", "group", "--starting-offsets", "never"), "earliest, latest or none"),
    ],
)
def test_wrong_usage(options: tuple[str, ...], reason: str) -> None:
    """An option that has no effect is refused with exit code 2."""
    ran = CliRunner().invoke(app, [*_COMMAND, *options], env={"COLUMNS": "300"})
    assert ran.exit_code == 2
    assert reason in ran.output
