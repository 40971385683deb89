"""Kafka Connect with exactly-once support for sources: a worker that is killed again and again writes every line once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from tests.applications.connect import Worker, source
from tests.support.echoless import Echoless
from tests.transactions.copied import read_all
from tests.transactions.open_transactions import is_open

pytestmark = [pytest.mark.clients, pytest.mark.slow]

_TOPIC = "written-once"
_KILLS = 2
_LINES_AT_ONCE = 50
_SETTINGS = {
    "exactly.once.support": "required",
    "transaction.boundary": "interval",
    "transaction.boundary.interval.ms": "400",
    "batch.size": "10",
}


def test_each_line_of_a_source_is_written_once(
    tmp_path: Path, broker: Echoless, create: Callable[..., None]
) -> None:
    """Lines and the source's position are committed together: what was open when the worker was killed is aborted, and read again."""
    bootstrap = broker.kafka_address
    create(_TOPIC)
    admin = AdminClient({"bootstrap.servers": bootstrap})
    worker = Worker(
        tmp_path, "worker", bootstrap, group_id="exactly", exactly_once_source_support="enabled"
    )
    lines: list[bytes] = []

    def write() -> None:
        new = [b"line %d" % (len(lines) + number) for number in range(_LINES_AT_ONCE)]
        with (tmp_path / "from").open("ab") as file:
            file.write(b"".join(line + b"\n" for line in new))
        lines.extend(new)

    def committed() -> list[bytes]:
        return read_all(bootstrap, "read_committed", _TOPIC, 1)

    def comes(count: int) -> bool:
        """Writes more, without which Connect does not look at its interval; whether so many lines are committed."""
        write()
        return len(committed()) >= count

    write()
    worker.process.start()
    wanted = {**source(tmp_path, _TOPIC), **_SETTINGS}
    worker.process.wait_until(
        lambda: bool(worker.ask("/connectors/source/config", wanted)), "the source is made"
    )
    for _ in range(_KILLS):
        before = len(read_all(bootstrap, "read_uncommitted", _TOPIC, 1))
        worker.process.wait_until(
            lambda before=before: comes(before + 1) and is_open(admin, _TOPIC, 1),
            "lines are committed, and a transaction is open",
        )
        worker.process.kill()
        worker.process.start()
    wanted_lines = len(lines)
    worker.process.wait_until(lambda: comes(wanted_lines), "every line is written")
    worker.process.kill()
    found = committed()
    assert found == lines[: len(found)]
    assert len(read_all(bootstrap, "read_uncommitted", _TOPIC, 1)) > len(lines), (
        "nothing was aborted"
    )
