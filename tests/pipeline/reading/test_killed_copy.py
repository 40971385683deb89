"""A stream through reader and sink whose driver is killed: each record is in the copy once, in order."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from echoless.testkit.admin import Admin
from echoless.testkit.faults import Faults
from tests.pipeline.pipeline_process import PipelineProcess
from tests.pipeline.reading.written import TOPIC, write
from tests.pipeline.stored_records import count_stored, stored_records
from tests.support.echoless import Echoless
from tests.toolchain import require
from tests.transactions.librdkafka import transactional

pytestmark = [pytest.mark.spark, pytest.mark.crash, pytest.mark.slow]

_PARTITIONS: Final = 2
_RECORDS: Final = 4000
_BATCH: Final = 400
_COPY: Final = "copy"
_STORED: Final = 3
"""Requests with records of the copy that are stored; the next one is held, and the driver killed in the midst of a micro-batch."""
_ABORTED: Final = 300
_WITHIN_S: Final = 60.0


def test_a_killed_copy_has_each_record_once(tmp_path: Path) -> None:
    """Aborted records are not in it, and headers and times are."""
    require("java")
    broker = Echoless(tmp_path / "broker", {"num_partitions": str(_PARTITIONS)})
    broker.start()
    address = broker.kafka_address
    half = _RECORDS // 2 // _PARTITIONS
    for partition in range(_PARTITIONS):
        write(address, partition, half)
    _abort(address)
    aborted_end = half + _ABORTED // _PARTITIONS + 1
    for partition in range(_PARTITIONS):
        write(address, partition, half, first=_RECORDS)
    arguments = (address, TOPIC, _COPY, str(tmp_path / "checkpoint"))
    arguments += ("--batch-records", str(_BATCH))
    module = "tests.pipeline.reading.copying"
    faults = Faults(Admin(broker.admin_address))
    with (
        faults.rule("hold_request", match={"api": "produce", "topic": _COPY}, skip=_STORED) as held,
        PipelineProcess(*arguments, directory=tmp_path / "first", module=module) as first,
    ):
        first.wait_until(lambda: held.held > 0)
        first.kill()
        first.wait_for_group()
    assert 0 < count_stored(address, _COPY, _PARTITIONS) < _RECORDS, "killed before its end"
    with PipelineProcess(*arguments, directory=tmp_path / "second", module=module) as second:
        assert second.wait() == 0, second.output
    for partition in range(_PARTITIONS):
        written = stored_records(address, TOPIC, partition)
        wanted = [one[1:] for one in written if not half <= one.offset < aborted_end]
        assert [one[1:] for one in stored_records(address, _COPY, partition)] == wanted
        assert len(wanted) == _RECORDS // _PARTITIONS
    broker.kill()


def _abort(address: str) -> None:
    producer = transactional(address)
    producer.begin_transaction()
    for number in range(_ABORTED):
        producer.produce(TOPIC, "aborted", partition=number % _PARTITIONS)
    assert producer.flush(_WITHIN_S) == 0
    producer.abort_transaction(_WITHIN_S)
