"""A store that loses answers, refuses and stalls: no attempt believes wrongly that it has won or lost."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from echoless.pipeline.exactly_once import object_store_files, repetition
from echoless.pipeline.exactly_once.errors import LedgerError, OptionError
from echoless.pipeline.exactly_once.ledger_files import check_conditions, open_ledger_files
from echoless.pipeline.exactly_once.store_settings import StoreSettings
from tests.pipeline.stores.faulty_s3 import Fault, FaultyS3, Stored, faulty_s3
from tests.pipeline.stores.servers import Store

WRITERS = 16
PASSING = [one for one in Fault if one is not Fault.UNCONDITIONAL]


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repetition, "_FIRST_PAUSE_S", 0.001)
    monkeypatch.setattr(repetition, "_LONGEST_PAUSE_S", 0.002)


def _scripted(faults: Iterable[Fault]) -> Callable[[], Fault]:
    remaining = iter(faults)
    return lambda: next(remaining, Fault.NONE)


def _create(store: Store, data: bytes) -> bool:
    return open_ledger_files(store.uri, StoreSettings(store.options)).create("a/entry", data)


def _content(bucket: FaultyS3) -> bytes:
    found = bucket.get("l/a/entry")
    assert isinstance(found, Stored)
    return found.data


@pytest.mark.parametrize("fault", PASSING)
def test_after_any_fault_the_only_attempt_has_won(fault: Fault) -> None:
    """An answer that was lost, too, after which the repetition is refused."""
    with faulty_s3(_scripted([fault])) as (store, bucket):
        assert _create(store, b"1")
        assert _content(bucket) == b"1"
        assert bucket.seen[0] is fault


def test_a_second_attempt_with_the_same_content_has_lost() -> None:
    """The content does not say who has written it."""
    with faulty_s3(_scripted([])) as (store, _):
        assert _create(store, b"1")
        assert not _create(store, b"1")


def test_a_lost_refusal_is_a_refusal() -> None:
    """An attempt that finds the entry of another in its place has lost."""
    with faulty_s3(_scripted([Fault.NONE, Fault.LOST])) as (store, bucket):
        assert _create(store, b"1")
        assert not _create(store, b"2")
        assert _content(bucket) == b"1"


@pytest.mark.slow
@settings(deadline=None, max_examples=20)
@given(faults=st.lists(st.sampled_from(PASSING), max_size=32))
def test_of_writers_at_once_one_has_won(faults: list[Fault]) -> None:
    """The one whose content is there, whatever happens to their requests."""
    with faulty_s3(_scripted(faults)) as (store, bucket):
        winners: list[bytes] = []
        barrier = threading.Barrier(WRITERS)

        def write(data: bytes) -> None:
            barrier.wait()
            if _create(store, data):
                winners.append(data)

        threads = [threading.Thread(target=write, args=(b"%d" % n,)) for n in range(WRITERS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert winners == [_content(bucket)]


def test_a_store_that_ignores_the_condition_is_refused() -> None:
    """Two attempts at once would both continue."""
    with faulty_s3(lambda: Fault.UNCONDITIONAL) as (store, bucket):
        files = open_ledger_files(store.uri, StoreSettings(store.options))
        with pytest.raises(OptionError, match="ledgerSingleWriter=true"):
            check_conditions(files, "orders", store.uri)
        assert not bucket.keys("l/orders/")


def test_a_single_writer_does_without_the_condition() -> None:
    """The caller guarantees that no two attempts run at once."""
    with faulty_s3(lambda: Fault.UNCONDITIONAL) as (store, bucket):
        settings_ = StoreSettings(store.options)
        files = open_ledger_files(store.uri, settings_, has_single_writer=True)
        assert files.create("a/entry", b"1")
        assert not files.create("a/entry", b"2")
        assert _content(bucket) == b"1"


def test_a_single_writer_survives_a_lost_answer() -> None:
    """It finds its own id in place of an answer."""
    with faulty_s3(_scripted([Fault.LOST])) as (store, _):
        settings_ = StoreSettings(store.options)
        assert open_ledger_files(store.uri, settings_, has_single_writer=True).create("a/e", b"1")


def test_a_store_that_stays_away_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the store's words, after the time that it has: by the clock of this test, until its second answer."""
    with faulty_s3(lambda: Fault.BUSY) as (store, bucket):

        def seconds() -> float:
            return 0.0 if len(bucket.seen) < 2 else repetition.REACHED_WITHIN_S

        clock = SimpleNamespace(monotonic=seconds, sleep=time.sleep)
        monkeypatch.setattr(repetition, "time", clock)
        with pytest.raises(LedgerError, match=r"s3://ledgers/l: .*503"):
            _create(store, b"1")
        assert len(bucket.seen) == 2


def test_signatures_in_addresses_are_not_shown() -> None:
    """Azure's stand in the query."""
    error = OSError("GET https://a.blob.core.windows.net/c/x?sv=2024&sig=sesame in 3 ms: 403")
    assert "sesame" not in object_store_files._line(error)
    assert "403" in object_store_files._line(error)
