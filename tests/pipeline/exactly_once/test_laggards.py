"""Attempts that are still alive when others have gone on: nothing is stored twice unnoticed."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest

from echoless.client.errors import DeliveryError
from echoless.pipeline.exactly_once import later_attempt
from echoless.pipeline.exactly_once.errors import LedgerError, SinkError
from echoless.pipeline.exactly_once.local_files import LocalFiles
from tests.pipeline.exactly_once.attempts import TOPIC, Attempts, all_values, rows, rows_for

pytestmark = pytest.mark.slow
_PATIENCE_S = 120


class SlowAttempt:
    """An attempt at batch 1, in a thread.

    It has sent its first rows, and sends the rest on request.
    """

    def __init__(self, attempts: Attempts, first: list[Any], rest: list[Any]) -> None:
        self._attempts = attempts
        self._first, self._rest = first, rest
        self._has_begun, self._may_go_on = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        assert self._has_begun.wait(_PATIENCE_S)

    def finish(self) -> None:
        self._may_go_on.set()
        self._thread.join(_PATIENCE_S)
        assert not self._thread.is_alive()

    def _run(self) -> None:
        with suppress(DeliveryError):  # it may find out that it has been forgotten
            self._attempts.run_in_vain(self._batches(), batch_id=1)

    def _batches(self) -> Iterator[Any]:
        yield from self._first
        self._has_begun.set()
        assert self._may_go_on.wait(_PATIENCE_S)
        yield from self._rest


@pytest.fixture
def once_counted(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], None]], None]:
    """Something that happens when another attempt has asked how far the producer came."""
    settle = later_attempt._settle

    def set_up(action: Callable[[], None]) -> None:
        def settle_later(*arguments: Any) -> later_attempt.Resumption:
            action()
            return settle(*arguments)

        monkeypatch.setattr(later_attempt, "_settle", settle_later)

    return set_up


@pytest.mark.usefixtures("small_chunks")
def test_a_partition_without_rows_does_not_end_an_attempt_that_is_alive(
    attempts, broker, once_counted
):
    """It has forgotten the producer, or has no leader; the numbers of the batch stay."""
    attempts.run([rows(100)])
    first, rest = [rows_for(0, 200, 100)], [rows_for(0, 200, 300)]
    slow = SlowAttempt(attempts, first, rest)
    broker.forget_producers(TOPIC, 2)
    once_counted(slow.finish)
    attempts.run([*first, *rest], batch_id=1)
    assert attempts.stored() == all_values(500)


@pytest.mark.usefixtures("small_chunks")
def test_rows_that_an_older_epoch_stored_behind_the_count_are_found(broker, tmp_path, once_counted):
    """The broker has forgotten the producer under the hands of an attempt that is alive."""
    attempts = Attempts(broker, tmp_path / "ledger", **{"kafka.batch.size": "1"})
    attempts.run([rows(100)])
    first = [rows_for(0, 100, 100), rows_for(1, 100, 200)]
    rest = [rows_for(1, 200, 300)]
    slow = SlowAttempt(attempts, first, rest)
    attempts.wait_for_stored(298)  # the last of each partition waits for another
    broker.forget_producers(TOPIC, 0)
    once_counted(slow.finish)
    for _ in range(2):  # later attempts find it too
        with pytest.raises(SinkError, match="rows of orders-1 are stored twice"):
            attempts.run([*first, *rest], batch_id=1)


def test_an_attempt_that_slept_through_later_batches_does_not_begin(attempts, monkeypatch):
    """Between its look into the ledger and its entry, the batch has ended and was cleaned away."""
    create = LocalFiles.create

    def create_late(self: LocalFiles, name: str, data: bytes) -> bool:
        monkeypatch.setattr(LocalFiles, "create", create)
        for batch_id in range(12):
            attempts.run([rows(10, batch_id * 10)], batch_id=batch_id)
        return create(self, name, data)

    monkeypatch.setattr(LocalFiles, "create", create_late)
    with pytest.raises(LedgerError, match="the ledger is at batch 11"):
        attempts.run([rows(10)])
    assert attempts.stored() == all_values(120)
    attempts.run([rows(10, 120)], batch_id=12)
