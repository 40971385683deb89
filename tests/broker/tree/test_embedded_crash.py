"""The embedded tree after SIGKILL and after a torn journal: what was answered is there, nothing is half.

The programs that are killed are in `CHANGES` and `IDS`; they write one line per answer that they got.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from random import Random

import pytest

from echoless.broker.tree.embedded import EmbeddedNodeTree
from echoless.broker.tree.node_tree import Create, SetData

ROUNDS = 6

CHANGES = """
import asyncio, os, sys
from echoless.broker.tree.embedded import EmbeddedNodeTree
from echoless.broker.tree.node_tree import ANY_VERSION, SetData, ensure_paths

async def main():
    tree = EmbeddedNodeTree.open(sys.argv[1])
    await ensure_paths(tree, ["/a", "/b"])
    await tree.create("/alive", ephemeral=True)
    while True:
        version = (await tree.read("/a")).version
        data = b"%d" % (version + 1)
        await tree.multi([SetData("/a", data, version), SetData("/b", data, version)])
        os.write(1, data + b"\\n")

asyncio.run(main())
"""

IDS = """
import asyncio, os, sys
from echoless.broker.tree.embedded import EmbeddedNodeTree
from echoless.broker.metadata.producer_ids import ProducerIds

async def main():
    ids = ProducerIds(EmbeddedNodeTree.open(sys.argv[1]), broker_id=1, block_size=7)
    await ids.start()
    while True:
        os.write(1, b"%d\\n" % await ids.wait_for_producer_id())

asyncio.run(main())
"""


def run_and_kill(program: str, path: str, lines_min: int) -> list[int]:
    """The whole lines that the program wrote until it was killed, somewhere after `lines_min`."""
    process = subprocess.Popen([sys.executable, "-c", program, path], stdout=subprocess.PIPE)
    assert process.stdout is not None
    lines = [process.stdout.readline() for _ in range(lines_min)]
    os.kill(process.pid, signal.SIGKILL)
    lines += process.stdout.read().splitlines(keepends=True)
    process.wait()
    process.stdout.close()
    return [int(line) for line in lines if line.endswith(b"\n")]


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "coordination.db")


@pytest.mark.crash
async def test_every_answered_change_survives_a_kill(path: str) -> None:
    """Both halves of each multi-operation are there, or neither; the lock and the session are gone."""
    rng = Random(1)
    answered = 0
    for _ in range(ROUNDS):
        lines = run_and_kill(CHANGES, path, rng.randint(1, 40))
        assert lines[0] > answered
        answered = lines[-1]
        tree = EmbeddedNodeTree.open(path)
        a, b = await tree.read("/a"), await tree.read("/b")
        assert a == b
        assert a.data == b"%d" % a.version
        assert answered <= a.version <= answered + 1
        answered = a.version
        assert await tree.read_many(["/alive"]) == [None]
        await tree.close()


@pytest.mark.crash
def test_producer_ids_never_repeat_across_kills(path: str) -> None:
    """Whatever was in hand, or being claimed, when the broker died is skipped."""
    rng = Random(2)
    taken: list[int] = []
    for _ in range(ROUNDS):
        taken += run_and_kill(IDS, path, rng.randint(1, 60))
    assert len(set(taken)) == len(taken)
    assert taken == sorted(taken)


def tear(path: str, torn: str, size: int) -> bool:
    """Copies file and journal, of the journal only the first bytes; whether that was all of it."""
    journal = Path(f"{path}-wal").read_bytes()
    shutil.copy(path, torn)
    Path(f"{torn}-wal").write_bytes(journal[:size])
    return size >= len(journal)


async def test_a_torn_journal_is_a_shorter_history(path: str, tmp_path: Path) -> None:
    """Cut anywhere, as by a power failure, the file opens at the end of some whole change."""
    tree = EmbeddedNodeTree.open(path)
    await tree.multi([Create("/a", b"0"), Create("/b", b"0")])
    for version in range(5):
        data = b"%d" % (version + 1)
        await tree.multi([SetData("/a", data, version), SetData("/b", data, version)])
    versions = []
    size = 0
    is_whole = False
    while not is_whole:
        is_whole = tear(path, str(tmp_path / "torn.db"), size)
        torn = EmbeddedNodeTree.open(str(tmp_path / "torn.db"))
        a, b = await torn.read_many(["/a", "/b"])
        assert a == b
        versions.append(-1 if a is None else a.version)
        await torn.close()
        size += 3001
    await tree.close()
    assert versions == sorted(versions)
    assert set(versions) == {-1, 0, 1, 2, 3, 4, 5}
