"""One contract for the ledger's files, wherever they are: created once, whole, and listed in order."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from echoless.pipeline.exactly_once.errors import LedgerError, OptionError
from echoless.pipeline.exactly_once.ledger_files import (
    LedgerFiles,
    check_conditions,
    open_ledger_files,
)
from echoless.pipeline.exactly_once.store_settings import StoreSettings
from tests.pipeline.stores.servers import Store, azurite, google, hdfs, s3proxy, versitygw

pytestmark = [pytest.mark.slow, pytest.mark.clients]

_WRITERS = 16
_KEYS = {versitygw: 40, azurite: 40, google: 20, hdfs: 2}
"""Keys that all writers create at once. S3Proxy 2.9 lets two win in 7 of 60 races, and S3Mock 4.11 in 40 of 60."""


@pytest.fixture(scope="module", params=[versitygw, s3proxy, azurite, google, hdfs])
def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Callable[[Path], AbstractContextManager[Store]], Store]]:
    """A server and its store."""
    with request.param(tmp_path_factory.mktemp("store")) as store:
        yield request.param, store


def _open(store: Store) -> LedgerFiles:
    return open_ledger_files(store.uri, StoreSettings(store.options))


def test_a_file_is_created_once(server) -> None:
    """The second creation returns False, and changes nothing."""
    files = _open(server[1])
    assert files.create("once/b/entry", b"first")
    assert not files.create("once/b/entry", b"second")
    assert files.read("once/b/entry") == b"first"


def test_files_are_listed_in_order(server) -> None:
    """Each by its name in the directory, which need not exist."""
    files = _open(server[1])
    for name in ("two", "one", "one"):
        files.create(f"list/{name}", name.encode())
    assert files.list("list") == ["one", "two"]
    assert files.list("nowhere") == []
    assert (files.find("list/one") is not None, files.find("list/three")) == (True, None)


def test_deleting_twice_does_no_harm(server) -> None:
    """Another attempt may be cleaning up too."""
    files = _open(server[1])
    files.create("delete/one", b"1")
    files.delete("delete/one")
    files.delete("delete/one")
    assert files.list("delete") == []


def test_the_condition_is_kept(server) -> None:
    """A ledger may be made here, and the probe leaves nothing."""
    files = _open(server[1])
    check_conditions(files, "probe", server[1].uri)
    assert files.list("probe") == []


def test_what_is_not_there_is_said(server) -> None:
    """At once: it will not come."""
    with pytest.raises(LedgerError, match="the ledger cannot be reached"):
        _open(server[1]).read("none/entry")


@pytest.mark.parametrize("server", [versitygw, azurite, google, hdfs], indirect=True)
def test_of_many_at_once_one_wins(server) -> None:
    """Attempts at the same batch: each learns truly whether it has won, and the content is the winner's."""
    start, store = server
    for key in range(_KEYS[start]):
        winners = _race(store, f"race/{key}")
        assert len(winners) == 1
        assert _open(store).read(f"race/{key}") == winners[0]


def _race(store: Store, name: str) -> list[bytes]:
    """Returns what the writers wrote that believe they have won."""
    barrier = threading.Barrier(_WRITERS)
    winners: list[bytes] = []
    files = _open(store)

    def write(data: bytes) -> None:
        barrier.wait()
        if files.create(name, data):
            winners.append(data)

    threads = [threading.Thread(target=write, args=(b"%d" % n,)) for n in range(_WRITERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return winners


def test_a_bucket_that_is_missing_is_said(tmp_path: Path) -> None:
    """At once, and in one line."""
    with versitygw(tmp_path) as store:
        files = open_ledger_files("s3://nowhere/l", StoreSettings(store.options))
        with pytest.raises(LedgerError, match=r"s3://nowhere/l: .*nowhere") as caught:
            files.create("a/b", b"1")
        assert len(str(caught.value).splitlines()) == 1


def test_a_wrong_secret_is_refused_and_not_shown(tmp_path: Path) -> None:
    """The message has the place, and no credentials."""
    with versitygw(tmp_path) as store:
        options = {**store.options, "secret_access_key": "sesame-open"}
        settings = StoreSettings(options)
        assert "sesame" not in repr(settings)
        with pytest.raises(
            LedgerError, match="the ledger cannot be reached: s3://ledgers/l"
        ) as caught:
            open_ledger_files(store.uri, settings).create("a/b", b"1")
        assert "sesame" not in str(caught.value)


def test_a_misspelt_setting_is_refused() -> None:
    """It would be missed at the wrong place."""
    with pytest.raises(OptionError, match="endpont"):
        open_ledger_files("s3://ledgers/l", StoreSettings({"endpont": "http://127.0.0.1:1"}))
    with pytest.raises(OptionError, match=r"option ledger\.endpoint: HDFS does not have it"):
        open_ledger_files("webhdfs://h/l", StoreSettings({"endpoint": "h"}))
    with pytest.raises(OptionError, match=r"option ledger\.endpoint: /l is a directory"):
        open_ledger_files("/l", StoreSettings({"endpoint": "h"}))
