"""`echoless verify` compares the aborted transactions in `.txnindex` with the markers in the log."""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from echoless.protocol.control_records import EndMarker, MarkerType, build_marker
from echoless.protocol.producer_effect import effect_of, marker_in
from echoless.protocol.record_batch import BatchHeader, leader_stamp, read_header, walk
from echoless.protocol.records import Record, build_batch
from echoless.storage import paths
from echoless.storage.producers.open_transactions import ClosedTransaction, OpenTransactions
from echoless.storage.transaction_index import ENTRY_SIZE, TransactionIndex
from tests.cli.command import Command
from tests.cli.data_directory import fill, open_directory
from tests.storage.compaction.keyed_log import CONFIG as COMPACTED
from tests.storage.compaction.keyed_log import clean
from tests.storage.compaction.test_transactions import end as mark
from tests.storage.compaction.test_transactions import write as write_in_transaction
from tests.storage.one_log import NOW_MS
from tests.support.apache_kafka import ApacheKafka

TOPIC = "orders"


def data(producer_id: int, sequence: int) -> bytes:
    """A batch of a transaction."""
    records = [Record(0, 1000, b"k", b"v")]
    return build_batch(
        records,
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=sequence,
        is_transactional=True,
    )


def end(producer_id: int, kind: MarkerType) -> bytes:
    """A marker."""
    return build_marker(EndMarker(kind, 0), producer_id, 0, 1000)


ABORT, COMMIT = MarkerType.ABORT, MarkerType.COMMIT
LOG = (data(1, 0), data(2, 0), end(2, ABORT), data(2, 1), end(1, ABORT), end(2, COMMIT))
ABORTED = (ClosedTransaction(2, 1, 2, 0), ClosedTransaction(1, 0, 4, 3))


def write(tmp_path: Path, aborted: Iterable[ClosedTransaction], first_offset: int = 0) -> Path:
    """A log of one segment, and the file beside it; returns that."""
    directory = fill(tmp_path)
    for file in directory.iterdir():
        if paths.parse_offset_file(file.name) is not None:
            file.unlink()
    stamped = [leader_stamp(read_header(b), i, 0) + b[16:] for i, b in enumerate(LOG)]
    file_of_log = directory / f"{first_offset:020d}.log"
    file_of_log.write_bytes(b"".join(stamped[first_offset:]))
    index = TransactionIndex(first_offset)
    for one in aborted:
        index.append(one)
    path = directory / f"{first_offset:020d}.txnindex"
    path.write_bytes(index.encode())
    for name in (paths.RECOVERY_POINT_CHECKPOINT, paths.HIGH_WATERMARK_CHECKPOINT):
        (tmp_path / name).write_text("0\n0\n")
    (tmp_path / paths.LOG_START_CHECKPOINT).write_text("0\n0\n")
    return path


def problems_of(tmp_path: Path, echoless: Command) -> list[str]:
    return echoless("verify", tmp_path, "--json").json["problems"]


def test_the_right_file_has_no_problem(tmp_path: Path, echoless: Command) -> None:
    """Two that were aborted, and one that was committed."""
    write(tmp_path, ABORTED)
    assert problems_of(tmp_path, echoless) == []


@pytest.mark.parametrize(
    ("aborted", "problem"),
    [
        (ABORTED[:1], "lacks the transaction of producer 1 from offset 0 to its marker at 4"),
        ((*ABORTED, ClosedTransaction(2, 3, 5, 6)), "the log aborts no such transaction"),
        ((ClosedTransaction(2, 1, 2, 1), ABORTED[1]), "the log says the transaction of producer 2"),
        ((ABORTED[0], ClosedTransaction(1, 1, 4, 3)), "the log says the transaction of producer 1"),
    ],
)
def test_a_wrong_file_is_named(
    tmp_path: Path, echoless: Command, aborted: tuple[ClosedTransaction, ...], problem: str
) -> None:
    """An entry that is missing, one too many, and one with other offsets."""
    write(tmp_path, aborted)
    (found,) = problems_of(tmp_path, echoless)
    assert problem in found


def test_a_missing_or_broken_file_is_named(tmp_path: Path, echoless: Command) -> None:
    """Without the file every aborted transaction is missing."""
    path = write(tmp_path, ABORTED)
    path.write_bytes(path.read_bytes()[:-1])
    (found,) = problems_of(tmp_path, echoless)
    assert "is not a series of aborted transactions" in found
    path.unlink()
    assert len(problems_of(tmp_path, echoless)) == 2


def test_what_began_before_the_log_is_not_judged(tmp_path: Path, echoless: Command) -> None:
    """A log from offset 1 on knows nothing of producer 1, nor of the last stable offset."""
    path = write(tmp_path, ABORTED, first_offset=1)
    assert not [p for p in problems_of(tmp_path, echoless) if "transaction" in p]
    path.write_bytes(path.read_bytes()[ENTRY_SIZE:])
    (found,) = [p for p in problems_of(tmp_path, echoless) if "transaction" in p]
    assert "lacks the transaction of producer 2 from offset 1" in found


def batches_of(directory: Path) -> Iterator[tuple[BatchHeader, EndMarker | None]]:
    for path in sorted(directory.glob("*.log")):
        data = path.read_bytes()
        for position, header in walk(data):
            yield header, marker_in(header, data[position : position + header.size])


def written_by_kafka(address: str) -> tuple[list[Producer], int]:
    """Transactions of three producers that overlap, some of them open; returns these, and the last stable offset.

    Segments are small, so that transactions span them.
    """
    server = {"bootstrap.servers": address, "log_level": 0}
    admin = AdminClient(server)
    topic = NewTopic(TOPIC, 1, 1, config={"segment.bytes": "600"})
    admin.create_topics([topic])[TOPIC].result()
    producers = [
        Producer({**server, "transactional.id": f"t{n}", "linger.ms": 0}) for n in range(3)
    ]
    for producer in producers:
        producer.init_transactions(30)
    rng, begun = random.Random(7), set()
    for place in [*(rng.randrange(3) for _ in range(120)), 0, 1, 2, 2]:
        producer = producers[place]
        if place in begun and rng.random() < 0.3:
            finish = rng.choice((producer.abort_transaction, producer.commit_transaction))
            finish(30)
            begun.remove(place)
            continue
        if place not in begun:
            producer.begin_transaction()
            begun.add(place)
        producer.produce(TOPIC, b"value")
        producer.flush(30)
    consumer = Consumer({**server, "group.id": "g", "isolation.level": "read_committed"})
    _, stable = consumer.get_watermark_offsets(TopicPartition(TOPIC, 0), timeout=30)
    consumer.close()
    return [producers[place] for place in begun], stable


@pytest.mark.kafka
@pytest.mark.slow
def test_kafka_agrees(apache_kafka: ApacheKafka, tmp_path: Path, echoless: Command) -> None:
    """The files and the last stable offset of a real Kafka are those that its log gives here."""
    unfinished, stable = written_by_kafka(apache_kafka.address)
    copy = tmp_path / f"{TOPIC}-0"
    fill(tmp_path)
    shutil.rmtree(copy)
    shutil.copytree(apache_kafka.data_dir / f"{TOPIC}-0", copy)
    for producer in unfinished:
        producer.abort_transaction(30)
    transactions, aborted, end_offset = OpenTransactions(), [], 0
    for header, marker in batches_of(copy):
        closed = transactions.note(header, header.base_offset, effect_of(header, marker))
        if closed is not None:
            aborted.append(closed)
        end_offset = header.next_offset
    written = []
    for path in sorted(copy.glob("*.txnindex")):
        index = TransactionIndex.decode(int(path.stem), path.read_bytes())
        assert index is not None
        written += [*index]
    assert written == aborted
    assert len(aborted) > 10
    assert len(transactions) == len(unfinished) > 0
    assert transactions.last_stable_offset(end_offset) == stable
    for name in (paths.RECOVERY_POINT_CHECKPOINT, paths.HIGH_WATERMARK_CHECKPOINT):
        (tmp_path / name).write_text("0\n0\n")
    # Kafka's snapshots and the preallocated indexes of its open segment are of another form.
    problems = problems_of(tmp_path, echoless)
    assert [p for p in problems if "txnindex" in p or "producer " in p] == []


@pytest.mark.parametrize("seed", range(3))
def test_a_compacted_log_has_no_problem(tmp_path: Path, echoless: Command, seed: int) -> None:
    """After each pass: batches are gone, then markers and the entries of their transactions."""
    rng = random.Random(seed)
    sequences, numbers = dict.fromkeys(range(3), 0), dict.fromkeys(range(3), 0)
    for after in range(4):
        with open_directory(tmp_path, COMPACTED) as log:
            for _ in range(60):
                producer_id = rng.randrange(3)
                has_ended = rng.random() < 0.4
                if has_ended:
                    kind = rng.choice([ABORT, ABORT, COMMIT])
                    mark(log, producer_id, kind, numbers[producer_id])
                    numbers[producer_id] += 1
                else:
                    sequence = rng.choice([sequences[producer_id], -1])
                    write_in_transaction(
                        log, producer_id, sequence, [(rng.choice([b"a", b"b"]), b"")]
                    )
                    sequences[producer_id] += sequence >= 0
            for producer_id in range(3):
                mark(log, producer_id, ABORT, numbers[producer_id])
                numbers[producer_id] += 1
        with open_directory(tmp_path, COMPACTED) as log:
            before = log.size_bytes
            now_ms = NOW_MS + after * COMPACTED.compaction_rules.delete_retention_ms
            assert clean(log, now_ms=now_ms)
            assert log.size_bytes < before
        assert problems_of(tmp_path, echoless) == []
