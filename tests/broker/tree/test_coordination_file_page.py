"""The worked example of the coordination file in `docs/formats/coordination-nodes.md`."""

from __future__ import annotations

import asyncio
from pathlib import Path

from echoless.broker.environment import COORDINATION_FILE
from echoless.broker.tree.embedded import EmbeddedNodeTree

PAGE = Path(__file__).parents[3] / "docs/formats/coordination-nodes.md"


async def write_tree(path: Path) -> None:
    tree = EmbeddedNodeTree.open(str(path))
    await tree.create("/a")
    await tree.close()


def test_page_shows_the_name_and_the_header_of_the_file(tmp_path: Path) -> None:
    """The documented bytes are at the documented positions of a closed file."""
    path = tmp_path / COORDINATION_FILE
    asyncio.run(write_tree(path))
    page = PAGE.read_text(encoding="utf-8")
    assert f"`<data_dir>/{COORDINATION_FILE}`" in page
    example = [line for line in page.split("```")[-2].splitlines() if line]
    header = path.read_bytes()[:100]
    for line in example:
        expected, _, meaning = line.partition("  ")
        at = int(meaning.strip().removeprefix("at ").partition(":")[0])
        assert header[at : at + 4] == bytes.fromhex(expected)
    assert len(example) == 2
    assert [one.name for one in tmp_path.iterdir()] == [COORDINATION_FILE]
