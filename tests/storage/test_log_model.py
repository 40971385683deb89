"""The log against a naive model: a list of batches without files, indexes or snapshots."""

from __future__ import annotations

import itertools
import random

import pytest

from echoless.protocol.errors import ErrorCode, KafkaError
from echoless.storage.os_file_system import OsFileSystem
from tests.storage import log_workload
from tests.storage.log_workload import Stored, Workload, new_file_system
from tests.storage.look_up import found


def check_reads(workload: Workload, rng: random.Random) -> None:
    """Reads from random offsets, with random limits, give what the list of batches gives."""
    log = workload.log
    for _ in range(3):
        offset = rng.randrange(workload.log_start, workload.end + 1)
        bytes_max, end_offset = rng.randrange(2000), rng.randrange(offset, workload.end + 2)
        data = log.read(offset, bytes_max, end_offset)
        possible = [
            stored
            for stored in workload.history
            if stored.header.last_offset >= offset and stored.end_offset <= end_offset
        ]
        check_read(data, possible, bytes_max)
    for offset in (workload.log_start - 1, workload.end + 1):
        with pytest.raises(KafkaError) as caught:
            log.read(offset, 100, 1 << 40)
        assert caught.value.code is ErrorCode.OFFSET_OUT_OF_RANGE


def check_read(data: bytes, possible: list[Stored], bytes_max: int) -> None:
    """Whole batches from the first possible one; one at least, not more than fit."""
    ends = [0, *itertools.accumulate(len(stored.data) for stored in possible)]
    assert len(data) in ends
    assert data == b"".join(stored.data for stored in possible)[: len(data)]
    if possible:
        assert len(data) == ends[1] or ends[1] < len(data) <= bytes_max


def run_and_compare(workload: Workload, seed: int, steps: int) -> None:
    rng = random.Random(seed)
    workload.start()
    for _ in range(steps):
        workload.step()
        workload.check(workload.log)
        check_reads(workload, rng)
        check_times(workload)
    workload.reopen()
    workload.close()


def check_times(workload: Workload) -> None:
    """Searches by time agree with a search through the list."""
    batches = [s.header for s in workload.history if s.end_offset > workload.log_start]
    # Records of a batch are one millisecond apart, so their times follow from the header.
    records = [
        (header.base_timestamp + delta, header.base_offset + delta)
        for header in batches
        for delta in range(header.record_count)
        if header.base_offset + delta >= workload.log_start
    ]
    newest = max(records, key=lambda record: (record[0], -record[1]), default=(-1, -1))
    assert found(workload.log.max_timestamp()) == newest
    if records:
        wanted = records[len(records) // 2][0]
        expected = next(record for record in records if record[0] >= wanted)
        assert found(workload.log.offset_at_timestamp(wanted)) == expected
        assert found(workload.log.offset_at_timestamp(newest[0] + 1)) is None


@pytest.mark.parametrize("seed", range(4))
def test_the_log_does_what_the_model_does(seed: int) -> None:
    """After every step of a random workload, contents, reads, searches and producers agree."""
    run_and_compare(Workload(new_file_system(), seed), seed, 150)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 110))
def test_long_workloads_do_what_the_model_does(seed: int) -> None:
    """The same for longer."""
    run_and_compare(Workload(new_file_system(), seed), seed, 500)


def test_the_real_file_system_does_what_the_model_does(
    tmp_path: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same workload on a real directory."""
    monkeypatch.setattr(log_workload, "DATA_DIR", str(tmp_path))
    run_and_compare(Workload(OsFileSystem(), 3), 3, 60)
