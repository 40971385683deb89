"""The examples of `docs/reader.md` work, and the page lists every option."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from echoless.pipeline.reading.options import _NAMES, _PARSERS
from tests.pipeline.reading.written import TOPIC, write

PAGE = Path(__file__).parents[3] / "docs/reader.md"


@pytest.mark.spark
def test_the_examples_read_and_copy(spark, broker, tmp_path, capsys):
    """A job that shows rows, and a stream into the sink."""
    broker.create(TOPIC, 1)
    broker.create("orders-copy", 1)
    write(broker.address, 0, 12)
    names: dict[str, object] = {}
    examples = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert len(examples) == 2
    for example in examples:
        program = example.replace("127.0.0.1:9092", broker.address)
        program = program.replace('"/data/', f'"{tmp_path}/data/')
        exec(compile(program, str(PAGE), "exec"), names)
    assert "|vvvvvvvvvvv11|" in capsys.readouterr().out
    copied = [(one.key, one.value, one.timestamp) for one in broker.read("orders-copy", 0)]
    assert copied == [(one.key, one.value, one.timestamp) for one in broker.read(TOPIC, 0)]


def test_the_page_lists_every_option():
    """The reader refuses all others."""
    text = PAGE.read_text(encoding="utf-8")
    listed = {name.lower() for name in re.findall(r"`([a-zA-Z.]+)`", text)}
    assert {*_PARSERS, *_NAMES} <= listed
