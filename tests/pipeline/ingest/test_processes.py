"""The ingest as a user runs it, killed in the middle of a file."""

from __future__ import annotations

from pathlib import Path

import pytest

from echoless.testkit.admin import Admin
from echoless.testkit.faults import Faults
from tests.pipeline.pipeline_process import PipelineProcess
from tests.pipeline.stored_records import count_stored, stored_records
from tests.support.echoless import Echoless
from tests.toolchain import require

pytestmark = [pytest.mark.spark, pytest.mark.crash]

_ROWS = 120_000
_PARTITIONS = 2


def test_an_ingest_goes_on_after_its_driver_was_killed(tmp_path: Path) -> None:
    """Killed in the middle of its one file and started again, it has stored each row once."""
    require("java")
    broker = Echoless(tmp_path / "broker", {"num_partitions": str(_PARTITIONS)})
    broker.start()
    address = broker.kafka_address
    lines = (f"{number},row number {number}\n" for number in range(_ROWS))
    (tmp_path / "rows.csv").write_text("id,text\n" + "".join(lines))
    arguments = (
        *("ingest", str(tmp_path / "rows.csv"), "--format", "csv", "--to", address),
        *("--topic", "rows", "--checkpoint", str(tmp_path / "checkpoint"), "--split-mib", "1"),
        *("--key-column", "id", "--value-column", "text"),
    )
    faults = Faults(Admin(broker.admin_address))
    with (
        faults.rule("hold_request", match={"api": "produce", "topic": "rows"}, skip=2) as held,
        PipelineProcess(*arguments, directory=tmp_path / "first") as first,
    ):
        first.wait_until(lambda: held.held > 0)
        first.kill()
        first.wait_for_group()
    stored_before = count_stored(address, "rows", _PARTITIONS)
    assert 0 < stored_before < _ROWS, "it was to be killed before its end"
    with PipelineProcess(*arguments, directory=tmp_path / "second") as second:
        assert second.wait() == 0, second.output
    assert "of them were stored already" in second.output
    stored = [one for part in range(_PARTITIONS) for one in stored_records(address, "rows", part)]
    wanted = [(b"%d" % number, b"row number %d" % number) for number in range(_ROWS)]
    assert sorted((one.key, one.value) for one in stored) == sorted(wanted)
    broker.kill()
