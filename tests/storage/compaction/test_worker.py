"""The process that does passes beside a broker writes what the broker would, and cleans up when it loses it."""

from __future__ import annotations

import io
import os
import pickle
import random

import pytest

from echoless.storage.compaction import cleaning
from echoless.storage.compaction.cleaning import Cleaning
from echoless.storage.compaction.swap import Cleaned
from echoless.storage.compaction.worker import LENGTH, Progress, encode, serve
from echoless.storage.file_system import StorageError
from tests.storage.compaction.keyed_log import (
    CONFIG,
    append,
    clean,
    compacted_view,
    keyed_batch,
    records_in,
)
from tests.storage.compaction.test_swap import written
from tests.storage.log_workload import read_all
from tests.storage.one_log import DIRECTORY, NOW_MS, OneLog


def begun(one: OneLog) -> Cleaning:
    """A pass over all closed segments."""
    end = one.log.log_end_offset
    found = one.log.compaction.find_pass(
        CONFIG, log_start_offset=0, log_end_offset=end, limit=end, now_ms=NOW_MS
    )
    assert found is not None
    return one.log.compaction.start(
        found, CONFIG, map_bytes_max=1 << 20, now_ms=NOW_MS, steady_ms=NOW_MS
    )


def answers(data: bytes) -> list[Progress]:
    found = []
    while data:
        (size,) = LENGTH.unpack(data[: LENGTH.size])
        found.append(pickle.loads(data[LENGTH.size : LENGTH.size + size]))
        data = data[LENGTH.size + size :]
    return found


class Broker(io.BytesIO):
    """Carries out each swap before it asks for more, up to so many portions of work."""

    def __init__(self, one: OneLog, portions: int = 1000) -> None:
        super().__init__()
        self.one = one
        self.cleaning = begun(one)
        self.answered = io.BytesIO()
        self.progress = [Progress(self.cleaning.report)]
        self._left = portions
        self._waiting = encode(self.cleaning.job)

    def read(self, size: int | None = -1) -> bytes:
        if not self._waiting:
            self._ask()
        data, self._waiting = self._waiting[:size], self._waiting[size:]
        return data

    def _ask(self) -> None:
        data = self.answered.getvalue()
        if data:
            (progress,) = answers(data)
            self.answered.seek(0)
            self.answered.truncate()
            self.progress.append(progress)
            if isinstance(progress.step, Cleaned):
                swap = self.one.log.compaction.start_swap(progress.step, CONFIG)
                assert swap is not None
                swap.run()
                self.one.log.finish_swap(swap)
            if progress.is_end:
                self.one.log.note_pass(progress.report)
            if progress.is_end or progress.failure is not None:
                return
        if self._left:
            self._left -= 1
            self._waiting = encode(0.0)

    def serve(self) -> None:
        serve(self.one.fs, self, self.answered)
        if self.answered.getvalue():
            self._ask()


@pytest.mark.parametrize("seed", range(3))
def test_the_process_leaves_what_a_thread_does(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same bytes, indexes and report, a step at a time; and the log goes on."""
    monkeypatch.setattr(cleaning, "PAUSE_BYTES", 1)
    by_thread, broker = written(seed), Broker(written(seed))
    assert clean(by_thread.log, is_rolled=False)
    broker.serve()
    log = broker.one.log
    assert len(broker.progress) > 10
    assert broker.progress[-1].is_end
    assert read_all(log) == read_all(by_thread.log)
    assert log.compaction.cleaned_to == by_thread.log.compaction.cleaned_to
    for here, there in zip(log._segments.closed, by_thread.log._segments.closed, strict=True):
        assert here.indexes.top == there.indexes.top
        assert here.indexes.offsets.encode() == there.indexes.offsets.encode()
        assert here.indexes.times.encode() == there.indexes.times.encode()
    append(log, keyed_batch([(b"new", b"x")]))
    log.flush()
    before = compacted_view(records_in(log))
    assert compacted_view(records_in(broker.one.close_and_open())) == before


def test_a_broker_that_is_gone_leaves_no_file_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    """The end of its input ends a pass at any portion, and the file that it was writing goes."""
    monkeypatch.setattr(cleaning, "PAUSE_BYTES", 1)
    whole = Broker(written(1))
    whole.serve()
    for portions in range(0, len(whole.progress), 3):
        broker = Broker(written(1), portions)
        view = compacted_view(records_in(broker.one.log))
        broker.serve()
        assert not [n for n in broker.one.fs.list_directory(DIRECTORY) if "cleaned" in n]
        assert compacted_view(records_in(broker.one.log)) == view


def test_files_of_the_process_have_names_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """The log's next owner may be writing the same segment while a broker's last process still does."""
    monkeypatch.setattr(cleaning, "PAUSE_BYTES", 1)
    one, names = written(1), set[str]()
    broker = Broker(one)
    operate = one.fs.operate

    def noted(path: str, verb: str) -> None:
        names.update(n for n in one.fs.list_directory(DIRECTORY) if n.endswith(".cleaned"))
        operate(path, verb)

    monkeypatch.setattr(one.fs, "operate", noted)
    broker.serve()
    assert names
    assert {name.split(".")[1] for name in names} == {str(os.getpid())}


def test_a_disk_that_fails_is_reported_with_the_file() -> None:
    """The pass has ended then; the broker says so, and tries again."""
    rng = random.Random(1)
    one = written(1)
    broker = Broker(one)
    one.fs.fail_at = one.fs.operations + rng.randrange(2, 5)
    broker.serve()
    failure = broker.progress[-1].failure
    assert failure is not None
    assert failure.path is not None
    assert failure.path.startswith(DIRECTORY)
    assert not failure.is_shortage
    assert str(StorageError(failure.path, failure.text)).count(failure.path) == 1
