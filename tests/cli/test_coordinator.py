"""`echoless coordinator catch-up`, on real files: what an operator does with an old copy."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import pytest

from echoless.broker.environment import COORDINATION_FILE
from echoless.broker.tree.node_tree import CoordinationError
from tests.cli.command import Command
from tests.support.in_process import in_process


def run_broker(directory: Path) -> list[int]:
    """Starts a broker and stops it; returns a few of its producer ids."""

    async def run() -> list[int]:
        async with in_process(directory, producer_id_block_size=10) as running:
            ids = running.broker.producer_ids
            return [await ids.wait_for_producer_id() for _ in range(25)]

    return asyncio.run(run())


def test_an_old_copy_is_refused_until_it_was_raised(tmp_path: Path, echoless: Command) -> None:
    """The message names the command, and after it no id comes twice."""
    data_dir = tmp_path / "data"
    file = data_dir / COORDINATION_FILE
    run_broker(tmp_path)
    shutil.copy(file, tmp_path / "old")
    handed_out = run_broker(tmp_path)
    shutil.copy(tmp_path / "old", file)
    with pytest.raises(CoordinationError, match="echoless coordinator catch-up"):
        run_broker(tmp_path)
    ran = echoless("coordinator", "catch-up", data_dir)
    assert (ran.code, ran.err) == (0, "")
    assert "/latest_producer_id_block" in ran.out
    assert min(run_broker(tmp_path)) > max(handed_out)
    ran = echoless("coordinator", "catch-up", data_dir)
    assert (ran.code, ran.out.split(":")[0]) == (0, "nothing to raise")


@pytest.mark.parametrize("what", ["meta.properties", COORDINATION_FILE])
def test_what_is_missing_is_named(what: str, tmp_path: Path, echoless: Command) -> None:
    """It takes one line, with exit code 1."""
    data_dir = tmp_path / "data"
    run_broker(tmp_path)
    (data_dir / what).unlink()
    ran = echoless("coordinator", "catch-up", data_dir)
    assert ran.code == 1
    assert ran.err.count("\n") == 1
    assert ("meta.properties" if what == "meta.properties" else "knows no cluster") in ran.err
