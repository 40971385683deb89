"""kafka-transactions and kafka-dump-log of Kafka 3.9 and 4.2: every subcommand, of transactions in several states."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.compatibility.kafka_tools import refused_tool, run_tool
from tests.support.apache_kafka import KafkaVersion
from tests.support.echoless import Echoless
from tests.transactions.librdkafka import TOPIC, create_topic, read_until, send, transactional

_TOOL = "org.apache.kafka.tools.TransactionsCommand"
_DUMP = "kafka.tools.DumpLogSegments"
_OPEN = "open"
_ENDED = "ended"
_ANY_AGE = ("--max-transaction-timeout", "-1000")
"""Minutes: those that are younger than the longest timeout are searched, too."""

pytestmark = [pytest.mark.clients, pytest.mark.kafka, pytest.mark.slow]


class Tool:
    """The tool of one version of Kafka, asked of one broker."""

    def __init__(self, address: str, jars: Path) -> None:
        self._server = ("--bootstrap-server", address)
        self._jars = jars

    def __call__(self, *arguments: str) -> list[dict[str, str]]:
        """The rows of the table that it prints, by the names of its columns."""
        printed = run_tool(_TOOL, *self._server, *arguments, jars=self._jars)
        lines = [[word.strip() for word in line.split("\t")] for line in printed.splitlines()]
        names, *rows = [line for line in lines if len(line) > 1] or [[]]
        return [dict(zip(names, row, strict=True)) for row in rows]

    def producers(self, partition: int) -> list[dict[str, str]]:
        """The producers that have written to a partition of `orders`."""
        where = ("--topic", TOPIC, "--partition", str(partition))
        return self("describe-producers", *where)


def state_segment(broker: Echoless) -> Path:
    """The one file of `__transaction_state` that has records."""
    paths = broker.data_dir.glob("__transaction_state-*/*.log")
    (found,) = [path for path in paths if path.stat().st_size]
    return found


def lose(broker: Echoless, segment: Path) -> None:
    """Removes the records of a partition from a broker that is stopped, as its operator might."""
    segment.unlink()
    partition = segment.parent.name
    command = ("-m", "echoless", "accept-loss", str(broker.data_dir), partition)
    subprocess.run([sys.executable, *command], check=True, capture_output=True)


@pytest.fixture
def broker(start_echoless: Callable[..., Echoless]) -> Echoless:
    """A broker with the topic `orders`."""
    echoless = start_echoless()
    create_topic(echoless.kafka_address)
    return echoless


@pytest.mark.parametrize("version", list(KafkaVersion))
def test_a_transaction_is_listed_described_and_aborted(
    broker: Echoless, version: KafkaVersion
) -> None:
    """From its beginning on; one that its coordinator knows is not hanging, and may be aborted by its offset."""
    bootstrap = broker.kafka_address
    tool = Tool(bootstrap, version.jars)
    holder = transactional(bootstrap, _OPEN, timeout_ms=300_000)
    other = transactional(bootstrap, _ENDED)
    holder.begin_transaction()
    send(holder, ["held"])
    other.begin_transaction()
    send(other, ["given"])
    other.commit_transaction()

    listed = {row["TransactionalId"]: row["TransactionState"] for row in tool("list")}
    assert listed == {_OPEN: "Ongoing", _ENDED: "CompleteCommit"}
    (described,) = tool("describe", "--transactional-id", _OPEN)
    assert described["CoordinatorId"] == "1"
    assert described["TransactionTimeoutMs"] == "300000"
    assert described["TopicPartitions"] == f"{TOPIC}-0"
    assert int(described["TransactionDurationMs"]) > 0
    (described_end,) = tool("describe", "--transactional-id", _ENDED)
    assert described_end["TopicPartitions"] == ""

    starts = {row["ProducerId"]: row["CurrentTransactionStartOffset"] for row in tool.producers(0)}
    assert starts == {described["ProducerId"]: "0", described_end["ProducerId"]: "None"}
    assert tool.producers(1) == []
    assert tool("find-hanging", "--broker-id", "1", *_ANY_AGE) == []
    assert tool("find-hanging", "--topic", TOPIC, *_ANY_AGE) == []

    tool("abort", "--topic", TOPIC, "--partition", "0", "--start-offset", "0")
    assert {row["CurrentTransactionStartOffset"] for row in tool.producers(0)} == {"None"}
    read_until(bootstrap, ["given"])


@pytest.mark.parametrize("version", list(KafkaVersion))
def test_a_transaction_that_no_coordinator_knows_is_found_and_aborted(
    broker: Echoless, version: KafkaVersion
) -> None:
    """The state of its id is lost with the files of `__transaction_state`."""
    tool = Tool(broker.kafka_address, version.jars)
    producer = transactional(broker.kafka_address, _OPEN)
    producer.begin_transaction()
    send(producer, ["lost"])
    broker.terminate()
    lose(broker, state_segment(broker))
    broker.start()
    (found,) = tool("find-hanging", "--broker-id", "1", *_ANY_AGE)
    assert (found["Topic"], found["Partition"], found["StartOffset"]) == (TOPIC, "0", "0")
    tool("abort", "--topic", TOPIC, "--partition", "0", "--start-offset", "0")
    assert tool("find-hanging", "--broker-id", "1", *_ANY_AGE) == []
    read_until(broker.kafka_address, [])


@pytest.mark.parametrize("version", list(KafkaVersion))
def test_an_id_that_is_unknown_is_named(broker: Echoless, version: KafkaVersion) -> None:
    """Describing it fails; the list is empty."""
    server = ("--bootstrap-server", broker.kafka_address)
    assert Tool(broker.kafka_address, version.jars)("list") == []
    said = refused_tool(_TOOL, *server, "describe", "--transactional-id", "nobody")
    assert "`nobody`" in said
    assert "could not be found" in said


def test_kafka_dump_log_shows_the_states_of_a_transaction(broker: Echoless) -> None:
    """From the log of a broker that still writes it."""
    producer = transactional(broker.kafka_address, _ENDED)
    producer.begin_transaction()
    send(producer, ["given"])
    producer.commit_transaction()
    read_until(broker.kafka_address, ["given"])
    segment = state_segment(broker)
    printed = run_tool(_DUMP, "--transaction-log-decoder", "--files", str(segment))
    states = [
        line.partition("state=")[2].partition(",")[0]
        for line in printed.splitlines()
        if f"transactionalId={_ENDED} " in line
    ]
    assert states == ["Empty", "Ongoing", "PrepareCommit", "CompleteCommit"]
