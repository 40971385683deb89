"""The examples of `docs/sink.md` work."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from echoless.pipeline.exactly_once.options import _PRODUCER_OPTIONS, _READERS
from tests.pipeline.exactly_once.attempts import PARTITIONS

PAGE = Path(__file__).parents[3] / "docs/sink.md"
LINES = [f"{number:08} a line" for number in range(100)]


def examples() -> list[str]:
    """The page's Python, block by block."""
    return re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)


@pytest.mark.spark
def test_the_examples_store_each_line_once(spark, broker, tmp_path):
    """A stream, the same as a data source, and a job."""
    (tmp_path / "data" / "orders").mkdir(parents=True)
    (tmp_path / "data" / "orders" / "lines.txt").write_text("\n".join(LINES))
    names: dict[str, object] = {}
    for example in examples():
        program = example.replace("127.0.0.1:9092", broker.address)
        program = program.replace('"/data/', f'"{tmp_path}/data/')
        exec(compile(program, str(PAGE), "exec"), names)
    stored = sorted(str(value, "utf-8") for value in broker.values("orders", PARTITIONS) if value)
    assert stored == sorted(LINES * 3)


def test_the_page_lists_every_option():
    """The sink refuses all others."""
    text = PAGE.read_text(encoding="utf-8")
    listed = {name.lower() for name in re.findall(r"`([a-zA-Z.]+)`", text)}
    assert {*_READERS, *_PRODUCER_OPTIONS} <= listed
