"""Many pieces of disk work: all are done, and the first error is raised."""

from __future__ import annotations

import threading

import pytest

from echoless.storage.disk_work import FEW, THREADS, RunAll, in_threads, one_by_one
from echoless.storage.file_system import StorageError


@pytest.mark.parametrize("run_all", [one_by_one, in_threads])
@pytest.mark.parametrize("count", [0, 1, FEW + 1, 3 * THREADS])
def test_every_piece_is_done_once(run_all: RunAll, count: int) -> None:
    """However many they are."""
    done: list[int] = []
    run_all([lambda number=number: done.append(number) for number in range(count)])
    assert sorted(done) == list(range(count))


def test_several_pieces_wait_at_the_same_time() -> None:
    """None of them could finish alone."""
    together = threading.Barrier(THREADS, timeout=60)
    in_threads([lambda: together.wait() and None] * THREADS)


def test_every_piece_is_done_without_a_single_new_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """A limit of processes makes it slower and nothing else."""

    def refuse(*_: object) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading, "_start_new_thread", refuse)
    done: list[int] = []
    in_threads([lambda number=number: done.append(number) for number in range(2 * THREADS)])
    assert done == list(range(2 * THREADS))


@pytest.mark.parametrize("run_all", [one_by_one, in_threads])
def test_an_error_is_raised_when_nothing_is_at_work_any_more(run_all: RunAll) -> None:
    """The owner may close files then."""
    done: list[int] = []

    def fail() -> None:
        raise StorageError("/x", "broken")

    with pytest.raises(StorageError, match="broken"):
        run_all([lambda: done.append(1), fail, *[lambda: done.append(1)] * (2 * THREADS)])
    assert len(done) in {1, 1 + 2 * THREADS}
