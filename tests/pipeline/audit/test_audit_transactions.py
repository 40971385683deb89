"""The whole audit on Spark, of logs with transactions and compaction: planted faults are found, sound logs are clean."""

from __future__ import annotations

import base64
import json
import re
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from echoless.pipeline.audit.findings import Finding, FindingKind, Severity
from echoless.pipeline.audit.log_checkpoints import read_checkpoints
from echoless.pipeline.audit.producer_names import client_ids, ids_in_cluster, ids_in_directories
from echoless.protocol.control_records import MarkerType
from tests.pipeline.written_logs import NOW_MS, Sent, write_logs

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.support.echoless import Echoless

pytestmark = pytest.mark.spark

PROBLEM, NOTE = Severity.PROBLEM, Severity.NOTE


def sent(sequence: int, count: int = 2, *, producer_id: int = 7, missing: int = 0) -> Sent:
    return Sent(producer_id, 0, sequence, count, NOW_MS + sequence, 0, missing, True)


def ends(marker: MarkerType, producer_id: int = 7) -> Sent:
    return Sent(producer_id, 0, -1, 1, NOW_MS, marker=marker)


ABORT, COMMIT = ends(MarkerType.ABORT), ends(MarkerType.COMMIT)
NEWER = sent(0)._replace(epoch=1)
NEWER_COMMIT = COMMIT._replace(epoch=1)
PLANTED: Final = {
    "repeat-seen": [sent(0), COMMIT, sent(0), COMMIT],
    "repeat-in-a-run": [sent(0), sent(2), sent(0), sent(2), sent(4), COMMIT],
    "repeat-aborted": [sent(0), COMMIT, sent(0), ABORT],
    "repeat-of-aborted": [sent(0), ABORT, sent(0), COMMIT],
    "thrice": [sent(0), ABORT, sent(0), COMMIT, sent(0), COMMIT],
    "late-aborted": [sent(0), sent(4), COMMIT, sent(2), ABORT],
    "gap-seen": [sent(0), COMMIT, sent(4), COMMIT],
    "gap-aborted": [sent(0), sent(4), ABORT],
    "open": [sent(0), COMMIT, sent(2), sent(4)],
    "lost-marker": [sent(0), NEWER, NEWER_COMMIT],
    "lost-marker-cleaned": [sent(0), NEWER, NEWER_COMMIT],
    "hole": [sent(0), sent(2, missing=3), COMMIT],
    "compacted": [sent(0), sent(4, missing=2), sent(6), sent(11, missing=3), COMMIT],
    "never-accepted": [
        sent(0),
        sent(0, 5, producer_id=8),
        sent(4),
        COMMIT,
        ends(MarkerType.COMMIT, 8),
    ],
    "too-few-removed": [sent(0), sent(9, missing=3), COMMIT],
}
COMPACTED: Final = ("lost-marker-cleaned", "compacted", "never-accepted", "too-few-removed")
EXPECTED: Final = {
    "repeat-seen": [(PROBLEM, FindingKind.REPEAT, 3, 4)],
    "repeat-in-a-run": [(PROBLEM, FindingKind.REPEAT, 4, 7)],
    "repeat-aborted": [(NOTE, FindingKind.REPEAT, 3, 4)],
    "repeat-of-aborted": [(NOTE, FindingKind.REPEAT, 3, 4)],
    "thrice": [(NOTE, FindingKind.REPEAT, 3, 4), (PROBLEM, FindingKind.REPEAT, 6, 7)],
    "late-aborted": [(NOTE, FindingKind.REORDERING, 5, 6)],
    "gap-seen": [(PROBLEM, FindingKind.GAP, 3, 4)],
    "gap-aborted": [(NOTE, FindingKind.GAP, 2, 3)],
    "open": [(NOTE, FindingKind.OPEN_TRANSACTION, 3, 6)],
    "lost-marker": [(PROBLEM, FindingKind.LOST_MARKER, 0, 1)],
    "lost-marker-cleaned": [(NOTE, FindingKind.LOST_MARKER, 0, 1)],
    "hole": [(PROBLEM, FindingKind.OFFSET_GAP, 2, 4)],
    "compacted": [
        (NOTE, FindingKind.COMPACTED, 4, 11),
        (NOTE, FindingKind.OFFSET_GAP, 2, 3),
    ],
    "never-accepted": [(PROBLEM, FindingKind.GAP, 7, 8)],
    "too-few-removed": [
        (NOTE, FindingKind.OFFSET_GAP, 2, 4),
        (PROBLEM, FindingKind.GAP, 5, 6),
    ],
}


def write_planted(directory: Path) -> Path:
    """A data directory with these logs, some of which the cleaner has gone through."""
    write_logs(directory, {(topic, 0): log for topic, log in PLANTED.items()})
    lines = [f"{topic} 0 0" for topic in COMPACTED]
    text = "\n".join(["0", str(len(lines)), *lines, ""])
    (directory / "cleaner-offset-checkpoint").write_text(text)
    return directory


def audited(spark: SparkSession, directory: Path, output: Path) -> list[Finding]:
    from echoless.pipeline.audit.audit import audit, shown

    source = {"paths": json.dumps([str(directory)]), "splitBytes": "1000"}
    tables = audit(spark, source, output, checkpoints=read_checkpoints([str(directory)]))
    return list(shown(tables.findings))


def test_each_planted_fault_is_found_and_what_nobody_sees_is_a_note(spark, tmp_path):
    """With its place, its time and its severity, however small the pieces are that tasks read."""
    directory = write_planted(tmp_path / "data")
    found = audited(spark, directory, tmp_path / "tables")
    by_topic = {
        topic: sorted(
            (one.severity, one.kind, one.base_offset, one.last_offset)
            for one in found
            if one.topic == topic
        )
        for topic in PLANTED
    }
    assert by_topic == {topic: sorted(rows) for topic, rows in EXPECTED.items()}
    repeat = next(one for one in found if one.topic == "repeat-in-a-run")
    assert (repeat.timestamp, repeat.producer_id) == (NOW_MS, 7)
    counted = spark.read.parquet(str(tmp_path / "tables" / "partitions.parquet"))
    rows = {row["topic"]: row for row in counted.collect()}
    thrice = rows["thrice"]
    assert [thrice[name] for name in ("records", "markers", "aborted", "open")] == [6, 3, 2, 0]
    assert rows["open"]["open"] == 4


def test_the_report_links_a_repeat_to_a_picture_of_its_batches(spark, tmp_path):
    """The same letter twice, with the finding between; the picture is in the file itself."""
    from typer.testing import CliRunner

    from echoless.pipeline.commands import app

    directory, report = write_planted(tmp_path / "data"), tmp_path / "report.html"
    arguments = ["audit", str(directory), "--topic", "repeat-seen", "--report", str(report)]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 1, result.output
    assert (
        "repeat-seen-0 offset 3, 2023-11-14 22:13:20.000 UTC: producer 7 epoch 0" in result.output
    )
    text = report.read_text()
    (anchor,) = re.findall(r'<figure id="(diagram-[^"]+)"', text)
    assert f'<a href="#{anchor}">diagram</a>' in text
    (data,) = re.findall(r'src="data:image/svg\+xml;base64,([^"]+)"', text)
    picture = base64.b64decode(data).decode()
    assert "again" in picture
    assert "sequences 0 to 1 are stored again" in picture
    assert "COMMIT marker at offset 2" in picture


def write_transactions(broker: Echoless, topic: str) -> None:
    """Transactions of one producer on few keys, some aborted; then waits until the cleaner has been there."""
    config = {
        "cleanup.policy": "compact",
        "min.cleanable.dirty.ratio": "0",
        "segment.bytes": "2000",
    }
    admin = AdminClient({"bootstrap.servers": broker.kafka_address})
    admin.create_topics([NewTopic(topic, 1, 1, config=config)])[topic].result()
    producer = Producer(
        {
            "bootstrap.servers": broker.kafka_address,
            "transactional.id": "billing",
            "client.id": "billing-1",
            "batch.num.messages": 3,
        }
    )
    producer.init_transactions()
    for number in range(30):
        producer.begin_transaction()
        for record in range(12):
            producer.produce(topic, b"%d" % number, key=b"%d" % (record % 5), partition=0)
        producer.flush()
        if number % 3:
            producer.commit_transaction()
        else:
            producer.abort_transaction()


def wait_for_cleaner(broker: Echoless) -> None:
    import urllib.request

    deadline = time.monotonic() + 120
    while True:
        with urllib.request.urlopen(f"http://{broker.admin_address}/metrics") as answer:
            passes = re.search(
                rb"^echoless_compaction_passes_total (\d+)", answer.read(), re.MULTILINE
            )
        if passes is not None and int(passes[1]):
            return
        assert time.monotonic() < deadline, "the cleaner never came"
        time.sleep(0.1)


def test_a_compacted_log_with_aborted_transactions_is_clean(spark, start_echoless, tmp_path):
    """A running broker has no problem, nor has its directory; its producer's names can be looked up in both."""
    broker = start_echoless(
        {"log_cleaner_backoff_ms": "200", "transaction_state_log_num_partitions": "1"}
    )
    write_transactions(broker, "prices")
    wait_for_cleaner(broker)

    from typer.testing import CliRunner

    from echoless.pipeline.commands import app

    live = CliRunner().invoke(app, ["audit", "--bootstrap-server", broker.kafka_address])
    assert live.exit_code == 0, live.output
    assert "no problems" in live.output
    assert "__transaction_state" not in live.output, "internal topics are left out"
    tables = tmp_path / "tables"
    arguments = ["audit", "--bootstrap-server", broker.kafka_address, "--topic", "prices"]
    assert CliRunner().invoke(app, [*arguments, "--output", str(tables)]).exit_code == 0
    batches = spark.read.parquet(str(tables / "batches.parquet"))
    (producer_id,) = [row[0] for row in batches.select("producer_id").distinct().collect()]
    assert ids_in_cluster(broker.kafka_address, {producer_id}) == {producer_id: "billing"}
    place = ("prices", 0, producer_id)
    assert client_ids(broker.admin_address, [place]) == {place: "billing-1"}

    broker.terminate()
    directory = str(broker.data_dir)
    assert ids_in_directories([directory], {producer_id}) == {producer_id: "billing"}
    stopped = CliRunner().invoke(app, ["audit", directory, "--internal"])
    assert stopped.exit_code == 0, stopped.output
    assert "compacted" in stopped.output
    assert "__transaction_state-0" in stopped.output
