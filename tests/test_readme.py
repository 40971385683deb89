"""The examples of the README work."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.echoless import Echoless

README = Path(__file__).parent.parent / "README.md"


@pytest.mark.slow
def test_python_example_stores_its_records(
    echoless: Echoless, capsys: pytest.CaptureFixture[str]
) -> None:
    """The README's producer, pointed at a broker, gets three acknowledgements."""
    _, section = README.read_text(encoding="utf-8").split("## Send records\n")
    section, *_ = section.split("\n## ")
    (example,) = re.findall(r"```python\n(.*?)```", section, re.DOTALL)
    assert "127.0.0.1:9092" in example
    program = example.replace("127.0.0.1:9092", echoless.kafka_address)
    exec(compile(program, str(README), "exec"), {})
    printed = capsys.readouterr().out.splitlines()
    assert printed == [f"orders-0 offset {offset}" for offset in range(3)]
