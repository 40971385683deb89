"""Apache Kafka's own command-line tools, against Echoless and against Apache Kafka alike.

One topic is written by the console producer; every other tool then looks at it, the log dump at its
files on disk. What the tests expect is what the tools show of Apache Kafka.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.compatibility.kafka_tools import run_tool
from tests.support.apache_kafka import ApacheKafka
from tests.support.echoless import Echoless
from tests.toolchain import require

_TOPIC = "console"
_LINES = [f"source:line,number:{n}\tkey-{n % 7}\tthe value of line {n}" for n in range(2000)]
_SEGMENT = "00000000000000000000"

pytestmark = [pytest.mark.clients, pytest.mark.slow, pytest.mark.kafka]


@dataclass(frozen=True, slots=True)
class _Server:
    address: str
    data_dir: Path

    def segment_file(self, suffix: str) -> str:
        """The path of the topic's first segment, or of one of its indexes."""
        return str(self.data_dir / f"{_TOPIC}-0" / f"{_SEGMENT}{suffix}")


@pytest.fixture(scope="module", params=["echoless", "apache-kafka"])
def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[_Server]:
    """A server whose topic `console` the console producer has written."""
    require("java", "kafka")
    if request.param == "echoless":
        echoless = Echoless(tmp_path_factory.mktemp("echoless-console"))
        echoless.start()
        found = _Server(echoless.kafka_address, echoless.data_dir)
        _write(found)
        # Echoless writes the indexes of a segment when it closes it.
        assert echoless.terminate() == 0
        echoless.start()
        yield found
        echoless.kill()
    else:
        kafka: ApacheKafka = request.getfixturevalue("apache_kafka")
        found = _Server(kafka.kafka_address, kafka.data_dir)
        _write(found)
        yield found


def _write(server: _Server) -> None:
    run_tool(
        "kafka.tools.ConsoleProducer",
        *("--bootstrap-server", server.address, "--topic", _TOPIC),
        *("--property", "parse.key=true", "--property", "parse.headers=true"),
        *("--producer-property", "enable.idempotence=true"),
        *("--request-required-acks", "all", "--compression-codec", "lz4"),
        *("--batch-size", "8192"),
        lines=_LINES,
    )


def test_console_consumer_prints_what_was_written(server: _Server) -> None:
    """kafka-console-consumer shows every line once, in order, with its headers and its key."""
    printed = run_tool(
        "org.apache.kafka.tools.consumer.ConsoleConsumer",
        *("--bootstrap-server", server.address, "--topic", _TOPIC),
        *("--partition", "0", "--offset", "earliest", "--max-messages", str(len(_LINES))),
        *("--property", "print.key=true", "--property", "print.headers=true"),
        *("--property", "print.offset=true", "--timeout-ms", "20000"),
    )
    expected = []
    for offset, line in enumerate(_LINES):
        headers, key, value = line.split("\t")
        expected.append(f"Offset:{offset}\t{headers}\t{key}\t{value}")
    assert printed.splitlines() == expected


@pytest.mark.parametrize(
    ("time", "offset"), [("earliest", 0), ("latest", len(_LINES)), ("max-timestamp", None)]
)
def test_get_offsets(server: _Server, time: str, offset: int | None) -> None:
    """kafka-get-offsets finds the first and the next offset, and a record of the newest time."""
    printed = run_tool(
        "org.apache.kafka.tools.GetOffsetShell",
        *("--bootstrap-server", server.address, "--topic", _TOPIC, "--time", time),
    )
    topic, partition, found = printed.strip().split(":")
    assert (topic, partition) == (_TOPIC, "0")
    assert int(found) == offset if offset is not None else 0 <= int(found) < len(_LINES)


def test_topics_lists_and_describes(server: _Server) -> None:
    """kafka-topics knows the topic, its one partition, and who leads it."""
    command = ("org.apache.kafka.tools.TopicCommand", "--bootstrap-server", server.address)
    assert _TOPIC in run_tool(*command, "--list").splitlines()
    described = run_tool(*command, "--describe", "--topic", _TOPIC)
    assert re.search(rf"Topic: {_TOPIC}\tTopicId: \S{{22}}\tPartitionCount: 1\t", described)
    assert re.search(r"Partition: 0\tLeader: 1\tReplicas: 1\tIsr: 1", described)


def test_dump_log_reads_the_segment(server: _Server) -> None:
    """kafka-dump-log finds whole, valid, idempotent batches that follow each other, and no gap."""
    printed = run_tool(
        "kafka.tools.DumpLogSegments",
        *("--deep-iteration", "--print-data-log", "--files", server.segment_file(".log")),
    )
    batches = [
        {name: int(value) for name, value in re.findall(r"(\w+): (-?\d+)\b", line)}
        for line in printed.splitlines()
        if line.startswith("baseOffset: ")
    ]
    assert len(batches) > 5
    assert printed.count("isvalid: true") == len(batches)
    position = offset = 0
    for batch in batches:
        assert (batch["baseOffset"], batch["baseSequence"]) == (offset, offset)
        assert (batch["lastOffset"], batch["lastSequence"]) == (offset + batch["count"] - 1,) * 2
        assert (batch["position"], batch["producerEpoch"], batch["magic"]) == (position, 0, 2)
        assert batch["producerId"] == batches[0]["producerId"] >= 0
        position += batch["size"]
        offset += batch["count"]
    assert offset == len(_LINES)
    assert re.findall(r"payload: (.*)", printed) == [line.split("\t")[2] for line in _LINES]


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
def test_dump_log_accepts_the_indexes(server: _Server, suffix: str) -> None:
    """kafka-dump-log looks every index entry up in the log and finds no mismatch."""
    printed = run_tool("kafka.tools.DumpLogSegments", "--files", server.segment_file(suffix))
    assert "mismatch" not in printed.lower(), printed
    assert "not sane" not in printed, printed
    entries = re.findall(r"^(?:offset|timestamp): \d+ ", printed, re.MULTILINE)
    assert len(entries) > 2, printed
