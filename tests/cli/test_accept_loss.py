"""`echoless accept-loss`, on a directory that lacks records."""

from __future__ import annotations

from pathlib import Path

import pytest

from echoless.storage import paths
from echoless.storage.file_system import CorruptLogError
from tests.cli.command import Command
from tests.cli.data_directory import CONFIG, fill, open_directory


@pytest.mark.slow
def test_the_next_start_goes_on_with_what_is_left(tmp_path: Path, echoless: Command) -> None:
    """The command that the refusal names is the one that helps."""
    directory = fill(tmp_path)
    logs = sorted(directory.glob(f"*{paths.LOG}"))
    logs[1].unlink()
    with pytest.raises(CorruptLogError) as caught, open_directory(tmp_path, CONFIG):
        pass
    command = str(caught.value).rpartition("run: echoless ")[2].split()
    ran = echoless(*command)
    assert (ran.code, ran.err) == (0, "")
    assert "orders-0" in ran.out
    with open_directory(tmp_path, CONFIG) as log:
        assert log.log_end_offset == int(logs[1].stem)


def test_what_nobody_misses_is_refused(tmp_path: Path, echoless: Command) -> None:
    """A typing mistake changes nothing."""
    fill(tmp_path)
    ran = echoless("accept-loss", tmp_path, "order-0")
    assert ran.code == 1
    assert "no such partition" in ran.err
    assert (tmp_path / paths.CLEAN_SHUTDOWN).exists()
    with open_directory(tmp_path):
        assert "in use" in echoless("accept-loss", tmp_path, "orders-0").err
