"""Recordings of clients, played again: to Echoless, and to a real Kafka."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from echoless.protocol.record_batch import read_header
from echoless.protocol.records import read_records
from echoless.testkit.echoless import Echoless
from echoless.testkit.recorder import Recorder
from echoless.testkit.recording.batches import batch_for
from echoless.testkit.recording.file import FORMAT, RecordingError, RecordingFile, read_events
from echoless.testkit.recording.steps import (
    LeftOut,
    PlayableBatch,
    PlayableEnd,
    PlayableSession,
    Recording,
)
from echoless.testkit.scripted_producer import ScriptedBatch, ScriptedProducer
from tests.cli.command import Command
from tests.support.apache_kafka import ApacheKafka
from tests.transactions.librdkafka import PARTITIONS, read_until

VALUES = tuple(b"value %d" % number for number in range(3))


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str]) -> Command:
    return Command(capsys)


@pytest.fixture(scope="module")
def recorded() -> Iterator[Echoless]:
    with Echoless() as running:
        yield running


@pytest.fixture(scope="module")
def target() -> Iterator[Echoless]:
    with Echoless() as running:
        yield running


def _send(echoless: Echoless, *batches: ScriptedBatch) -> list[int]:
    """The codes of the answers."""
    with closing(ScriptedProducer.open(echoless.bootstrap_servers)) as producer:
        codes = []
        for batch in batches:
            producer.send(batch)
            codes.append(producer.receive(timeout_s=10)[1].error_code)
    return codes


def _story(topic: str) -> list[ScriptedBatch]:
    """Stored, repeated, a gap, a new epoch, a zombie of the old one, and other records under used numbers."""
    first = ScriptedBatch(topic, 0, 4000, 0, 0, VALUES)
    second = first._replace(base_sequence=3)
    gap = first._replace(base_sequence=9)
    newer = first._replace(producer_epoch=1)
    other = newer._replace(values=(b"other", b"records", b"here"))
    return [first, second, first, gap, newer, second, other]


STORY_OUTCOMES = [
    "append",
    "append",
    "duplicate",
    "OUT_OF_ORDER_SEQUENCE_NUMBER",
    "append",
    "INVALID_PRODUCER_EPOCH",
]


def _record(
    echoless: Echoless, path: Path, *batches: ScriptedBatch, with_records: bool = True
) -> None:
    with (
        RecordingFile(path, with_records=with_records) as file,
        Recorder(
            [echoless.broker.admin], requests=True, records=with_records, keep=file.add
        ) as recorder,
    ):
        _send(echoless, *batches)
        recorder.settle()


@pytest.mark.slow
@pytest.mark.parametrize("with_records", [True, False])
def test_a_recording_is_played_as_it_was(
    recorded: Echoless, target: Echoless, command: Command, tmp_path: Path, with_records: bool
) -> None:
    """Each batch meets the same end in a broker that has never seen it, whose topic is made for it."""
    topic = recorded.topic(f"story-{with_records}")
    path = tmp_path / "run.jsonl"
    _record(recorded, path, *_story(topic), with_records=with_records)
    assert (b"value 2" in _all_records(path)) is with_records
    ran = command("replay", path, "--json", "--bootstrap-server", target.bootstrap_servers)
    assert ran.code == 0, ran.err
    assert [row["recorded"] for row in ran.json][:6] == STORY_OUTCOMES
    assert [row["now"] for row in ran.json] == [row["recorded"] for row in ran.json]
    values = [record.value for record in target.records(topic)]
    if with_records:
        assert values == list(VALUES) * 3
    else:
        assert len(values) == 9
        assert not set(values) & set(VALUES)


def _all_records(path: Path) -> bytes:
    batches = [
        batch["records"] or ""
        for event in read_events(path)
        if event["event"] == "request"
        for batch in event["batches"]
    ]
    return b"".join(map(base64.b64decode, batches))


@pytest.mark.slow
def test_a_broker_that_decides_otherwise_is_shown(
    recorded: Echoless, target: Echoless, command: Command, tmp_path: Path
) -> None:
    """A recording that is played twice under its own producer ids meets itself; the exit code is 1."""
    topic = recorded.topic("twice")
    path = tmp_path / "run.jsonl"
    _record(recorded, path, ScriptedBatch(topic, 0, 5000, 0, 0, VALUES))
    arguments = "replay", path, "--keep-producer-ids", "--bootstrap-server"
    assert command(*arguments, target.bootstrap_servers).code == 0
    again = command(*arguments, target.bootstrap_servers)
    assert again.code == 1
    assert "differs" in again.out
    assert "0 as recorded, 1 not" in again.err
    fresh = command("replay", path, "--bootstrap-server", target.bootstrap_servers)
    assert fresh.code == 0, fresh.out


@pytest.mark.slow
def test_a_replay_ends_where_nobody_knows_what_is_stored(
    recorded: Echoless, target: Echoless, command: Command, tmp_path: Path
) -> None:
    """A batch that is sent again could be taken for a difference."""
    topic = recorded.topic("doubt")
    path = tmp_path / "run.jsonl"
    _record(recorded, path, ScriptedBatch(topic, 0, 6000, 0, 0, VALUES))
    match = {"api": "produce", "topic": topic}
    with target.faults.rule("close_after", match=match, times=1):
        ran = command("replay", path, "--bootstrap-server", target.bootstrap_servers)
    assert ran.code == 1
    assert f"{topic}-0" in ran.err
    assert "whether that is stored is not known" in ran.err


@pytest.mark.slow
def test_a_replay_that_ends_early_shows_what_it_has_played(
    recorded: Echoless, target: Echoless, command: Command, tmp_path: Path
) -> None:
    """Its JSON is whole, and the reason is on standard error."""
    topic = recorded.topic("early")
    path = tmp_path / "run.jsonl"
    _record(recorded, path, *(ScriptedBatch(topic, 0, 6500, 0, n * 3, VALUES) for n in range(3)))
    match = {"api": "produce", "topic": topic}
    for arguments in (["--json"], []):
        with target.faults.rule("close_after", match=match, nth=2):
            ran = command(
                "replay", path, *arguments, "--bootstrap-server", target.bootstrap_servers
            )
        assert ran.code == 1
        assert "whether that is stored is not known" in ran.err
        if arguments:
            assert [row["base_sequence"] for row in ran.json] == [0]
        else:
            assert "1 batch" in ran.out


@pytest.mark.slow
def test_lost_answers_of_a_real_client_are_recorded_and_played(
    recorded: Echoless, target: Echoless, command: Command, tmp_path: Path
) -> None:
    """The batch whose answer was lost came twice, and is twice in the file; the lost request is not played."""
    topic = recorded.topic("lost")
    path = tmp_path / "run.jsonl"
    options = {**recorded.client_options, "request.timeout.ms": 1000, "socket.timeout.ms": 1000}
    with (
        RecordingFile(path, with_records=True) as file,
        Recorder([recorded.broker.admin], requests=True, records=True, keep=file.add) as recorder,
    ):
        producer = Producer({**options, "enable.idempotence": True})
        match = {"api": "produce", "topic": topic}
        with recorded.faults.rule("drop_response", match=match, times=1):
            producer.produce(topic, b"answer lost")
            assert producer.flush(30) == 0
        with recorded.faults.rule("drop_request", match=match, times=1):
            producer.produce(topic, b"request lost")
            assert producer.flush(30) == 0
        recorder.settle()
    kinds = [event["event"] for event in read_events(path)]
    assert kinds.count("fault") == 2
    ran = command("replay", path, "--json", "--bootstrap-server", target.bootstrap_servers).json
    assert [row["recorded"] for row in ran] == ["append", "duplicate", "append"]
    assert not any(row["differs"] for row in ran)
    assert [one.value for one in target.records(topic)] == [b"answer lost", b"request lost"]
    drawn = command("trace", path)
    assert drawn.code == 0
    assert "lost" in drawn.out


@pytest.mark.slow
def test_transactions_are_played_with_their_ends(
    recorded: Echoless, target: Echoless, command: Command, tmp_path: Path
) -> None:
    """Committed, aborted, and left by an instance that was fenced: readers see what they saw.

    Every partition is named, so that the topic has as many in the target.
    """
    topic = recorded.topic("ends", partitions=PARTITIONS)
    path = tmp_path / "run.jsonl"
    options = {**recorded.client_options, "transactional.id": "tx"}
    with (
        RecordingFile(path, with_records=True) as file,
        Recorder([recorded.broker.admin], requests=True, records=True, keep=file.add) as recorder,
    ):
        first = Producer(options)
        first.init_transactions(30)
        for number in range(3):
            first.begin_transaction()
            first.produce(topic, b"first %d" % number, partition=number)
            assert first.flush(30) == 0
            (first.abort_transaction if number == 1 else first.commit_transaction)(30)
        first.begin_transaction()
        first.produce(topic, b"left open", partition=1)
        assert first.flush(30) == 0
        second = Producer(options)
        second.init_transactions(30)
        second.begin_transaction()
        second.produce(topic, b"second", partition=0)
        second.commit_transaction(30)
        recorder.settle()
    ran = command("replay", path, "--json", "--bootstrap-server", target.bootstrap_servers)
    assert ran.code == 0, ran.err
    assert "refused" not in ran.err
    for echoless in (recorded, target):
        read_until(echoless.bootstrap_servers, ["first 0", "first 2", "second"], topic)
    rule = {"match": {"api": "end_txn"}, "action": {"type": "error", "code": "INVALID_TXN_STATE"}}
    with Echoless() as other:
        other.faults.add(**rule)
        ran = command("replay", path, "--bootstrap-server", other.bootstrap_servers)
    assert ran.code == 1
    assert "refused: " in ran.err


@pytest.mark.kafka
def test_a_real_kafka_decides_as_recorded(
    recorded: Echoless, command: Command, tmp_path: Path
) -> None:
    """The story's numbers, played to Apache Kafka: alike up to the batch where Echoless is stricter by design."""
    topic = recorded.topic("kafka")
    path = tmp_path / "run.jsonl"
    _record(recorded, path, *_story(topic))
    kafka = ApacheKafka(tmp_path / "kafka")
    kafka.start()
    try:
        ran = command("replay", path, "--json", "--bootstrap-server", kafka.kafka_address)
    finally:
        kafka.kill()
    assert ran.out, ran.err
    assert [row["now"] for row in ran.json][:6] == STORY_OUTCOMES
    last = ran.json[6]
    assert (last["recorded"], last["now"]) == ("UNKNOWN_PRODUCER_ID", "duplicate")
    assert ran.code == 1


def _event(kind: str, number: int, **fields: Any) -> dict[str, Any]:
    who = {"broker_id": 1, "connection_id": 3, "correlation_id": number}
    return {"event": kind, "number": number, "time_ms": number, **who, **fields}


def _request(number: int, producer_id: int = 7, **fields: Any) -> dict[str, Any]:
    batch = {
        "topic": "t",
        "partition": 0,
        "producer_id": producer_id,
        "producer_epoch": 0,
        "base_sequence": 0,
        "last_sequence": 0,
        "record_count": 1,
        "last_offset_delta": 0,
        "attributes": 0,
        "base_timestamp": 5,
        "max_timestamp": 5,
        "crc": 77,
        "size_bytes": 100,
        "records": None,
    }
    request = {
        "api": "produce",
        "version": 9,
        "transactional_id": None,
        "batches": [batch],
        "is_cut": False,
    }
    return _event("request", number, **(request | fields))


def _decision(number: int, correlation_id: int, **fields: Any) -> dict[str, Any]:
    where = {"topic": "t", "partition": 0, "correlation_id": correlation_id}
    return _event("decision", number, **where, **fields)


def test_batches_that_no_broker_has_judged_are_left_out() -> None:
    """They came again; one without a producer id is never judged, and is played."""
    events = [
        _request(1),
        _request(2, -1),
        _event("lost", 3, count=4),
        _request(4, is_cut=True, batches=[]),
    ]
    recording = Recording(lambda: events)
    (step,) = recording.steps()
    assert isinstance(step, PlayableBatch)
    assert step.outcome is None
    assert recording.partitions == {"t": 1}
    assert recording.left_out == LeftOut(undecided=1, lost=4, cut=1)


def test_brokers_are_merged_by_time_and_their_lives_told_apart() -> None:
    """A restarted broker counts from 1 again: its numbers are those of other requests."""
    first = [_request(1, time_ms=10), _decision(2, 1, time_ms=10, decision="append", error=None)]
    again = [
        _request(1, time_ms=30),
        _decision(2, 1, time_ms=30, decision="reject", error="INVALID_PRODUCER_EPOCH"),
    ]
    other = [
        _request(7, time_ms=20, broker_id=2),
        _decision(8, 7, time_ms=20, broker_id=2, decision="divergent_duplicate", error=None),
    ]
    recording = Recording(lambda: [*first, *again, *other])
    outcomes = [step.outcome for step in recording.steps() if isinstance(step, PlayableBatch)]
    assert outcomes == ["append", "duplicate", "INVALID_PRODUCER_EPOCH"]


def test_transactions_of_both_generations_are_told_apart() -> None:
    """By the version in which the producer ends them; a timeout is an end without a request."""
    step = {"transactional_id": "old", "producer_id": 7, "producer_epoch": 2}
    new = {**step, "transactional_id": "new"}
    events = [
        _event("transaction", 1, step="session", **step),
        _event("transaction", 2, step="session", **new),
        _request(3, api="end_txn", version=4, batches=[]),
        _event("transaction", 4, step="commit", correlation_id=3, **step),
        _request(5, api="end_txn", version=5, batches=[]),
        _event("transaction", 6, step="abort", correlation_id=5, **new),
        _event("transaction", 7, step="time_out", connection_id=0, **new),
    ]
    assert list(Recording(lambda: events).steps()) == [
        PlayableSession(1, "old", (7, 2), raises_epoch=False),
        PlayableSession(2, "new", (7, 2), raises_epoch=True),
        PlayableEnd(4, "old", is_commit=True, is_timed_out=False),
        PlayableEnd(6, "new", is_commit=False, is_timed_out=False),
        PlayableEnd(7, "new", is_commit=False, is_timed_out=True),
    ]


def test_records_that_were_left_out_are_stood_in_for() -> None:
    """As many, about as large, the same for the same checksum and others for another one."""
    fields = _request(1)["batches"][0]
    fields |= {"record_count": 3, "last_offset_delta": 2, "size_bytes": 400, "attributes": 3}
    batch = PlayableBatch(1, "t", 0, None, fields, None, "append")
    made = batch_for(batch, 9, 4)
    header = read_header(made)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (9, 4, 0)
    assert header.codec_id == 0
    assert len(read_records(made)) == 3
    assert abs(len(made) - 400) < 40
    assert batch_for(batch, 9, 4) == made
    other = batch._replace(fields={**fields, "crc": 78})
    assert batch_for(other, 9, 4) != made


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "line 1"),
        ("{}\n", "not an event"),
        ('{"event":"decision"}\n', "begins with a decision"),
        (json.dumps({"event": "recording", "format": FORMAT + 1}) + "\n", "has format 2"),
        (json.dumps({"event": "recording", "format": FORMAT}) + "\n{]\n", "line 2"),
    ],
)
def test_a_file_that_is_no_recording_is_refused_with_its_line(
    tmp_path: Path, text: str, said: str
) -> None:
    path = tmp_path / "run.jsonl"
    path.write_text(text)
    with pytest.raises(RecordingError, match=said) as raised:
        list(read_events(path))
    assert str(path) in str(raised.value)


def test_an_old_recording_stays_until_a_broker_answers(tmp_path: Path, command: Command) -> None:
    path = tmp_path / "run.jsonl"
    path.write_text("old\n" * 100)
    ran = command("record", path, "--admin", "127.0.0.1:1")
    assert (ran.code, path.read_text()) == (1, "old\n" * 100), ran.err
    with RecordingFile(path, with_records=False) as file:
        file.begin()
        file.add(_request(1))
    assert len(list(read_events(path))) == 1


def test_a_recording_that_was_cut_off_is_read_up_to_there(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    with RecordingFile(path, with_records=False) as file:
        threads = [
            threading.Thread(target=file.add, args=[_request(number)]) for number in range(5)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    path.write_text(path.read_text()[:-9])
    assert len(list(read_events(path))) == 4
