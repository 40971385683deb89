"""The examples of `docs/client.md` work."""

from __future__ import annotations

import re
from pathlib import Path

import pyarrow as pa

from echoless.client.producer import Producer
from tests.client.test_state import GOLDEN
from tests.support.echoless import Echoless
from tests.support.stored_values import read_stored_values
from tests.transactions.librdkafka import create_topic, read_until

PAGE = Path(__file__).parents[2] / "docs" / "client.md"


def test_example_copies_each_line_once(echoless: Echoless, tmp_path: Path, monkeypatch) -> None:
    """Run twice, the second time from an old checkpoint, it stores every line once."""
    example, *_ = examples()
    program = example.replace("127.0.0.1:9092", echoless.kafka_address).replace("1000", "10")
    monkeypatch.chdir(tmp_path)
    lines = [b"%d" % number for number in range(45)]
    Path("input.txt").write_bytes(b"\n".join(lines[:25]))
    exec(compile(program, str(PAGE), "exec"), {})
    old = Path("checkpoint.json").read_text()
    Path("input.txt").write_bytes(b"\n".join(lines))
    exec(compile(program, str(PAGE), "exec"), {})
    Path("checkpoint.json").write_text(old)
    exec(compile(program, str(PAGE), "exec"), {})
    assert read_stored_values(echoless.kafka_address, "lines", 1) == [lines]


def test_a_transaction_is_committed_as_shown(echoless: Echoless) -> None:
    """Two records and an offset."""
    _, example, _ = examples()
    for topic in ("input", "orders", "totals"):
        create_topic(echoless.kafka_address, topic)
    exec(compile(example.replace("127.0.0.1:9092", echoless.kafka_address), str(PAGE), "exec"), {})
    read_until(echoless.kafka_address, ["one"], "orders")
    read_until(echoless.kafka_address, ["1"], "totals")


def test_columns_are_sent_as_shown(echoless: Echoless) -> None:
    """Two chunks become one batch, in the order of their rows."""
    *_, example = examples()
    times = pa.array([1_795_000_000_000, 1_795_000_000_001])
    chunks = [
        {"key": pa.array(["k", None]), "value": pa.array(values), "timestamp": times}
        for values in ([b"a", b"b"], [b"c", b"d"])
    ]
    with Producer(echoless.kafka_address) as producer:
        exec(compile(example, str(PAGE), "exec"), {"producer": producer, "chunks": chunks})
    assert read_stored_values(echoless.kafka_address, "orders", 1) == [[b"a", b"b", b"c", b"d"]]


def examples() -> list[str]:
    """The page's Python, block by block."""
    return re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)


def test_state_shown_is_the_real_form() -> None:
    """The JSON of the page is what a producer writes."""
    (shown,) = re.findall(r"```json\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert " ".join(shown.split()) == GOLDEN
