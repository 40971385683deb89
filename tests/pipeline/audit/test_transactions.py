"""Transactions in a log: which were aborted and which are open, wherever the log is divided; held against a model."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pytest

from echoless.pipeline.audit.findings import FindingKind, Severity
from echoless.pipeline.audit.transaction_history import (
    JudgedTransaction,
    TransactionOutcome,
    findings_about,
)
from echoless.protocol.control_records import MarkerType
from tests.pipeline.audit.without_spark import (
    judge_logs,
    judge_producers,
    judge_transactions,
    read_batches,
)
from tests.pipeline.written_logs import NOW_MS, Sent, write_logs

ABORT, COMMIT = MarkerType.ABORT, MarkerType.COMMIT


class Ended(NamedTuple):
    """A transaction, as the model and the audit name it."""

    producer_id: int
    outcome: str
    base_offset: int
    last_offset: int
    records: int


def transactional_log(seed: str, *, producers: int = 4, steps: int = 150) -> list[Sent]:
    """Transactions of several producers, mixed with each other and with batches outside of any."""
    rng = random.Random(seed)
    sequences = dict.fromkeys(range(100, 100 + producers), 0)
    plain = 0
    log = []
    for step in range(steps):
        producer_id, time, count = rng.choice(list(sequences)), NOW_MS + step, rng.randint(1, 4)
        chance = rng.random()
        if chance < 0.25:
            marker = rng.choice((ABORT, COMMIT, COMMIT))
            log.append(Sent(producer_id, 0, -1, 1, time, marker=marker))
        elif chance < 0.35:
            log.append(Sent(7, 0, plain, count, time))
            plain += count
        else:
            sequence = sequences[producer_id]
            log.append(Sent(producer_id, 0, sequence, count, time, is_transactional=True))
            sequences[producer_id] += count
    return log


def expected(log: list[Sent]) -> Iterator[Ended]:
    """The model: one pass over the log, batch by batch."""
    offset = 0
    open_: dict[int, tuple[int, int, int]] = {}
    for sent in log:
        first, last = offset, offset + sent.count - 1
        offset = last + 1
        begun = open_.get(sent.producer_id)
        if sent.marker is not None:
            if begun is not None and sent.marker is ABORT:
                yield Ended(sent.producer_id, "aborted", begun[0], last, begun[2])
            open_.pop(sent.producer_id, None)
        elif sent.is_transactional:
            start, _, records = begun or (first, last, 0)
            open_[sent.producer_id] = start, last, records + sent.count
    for producer_id, (start, last, records) in open_.items():
        yield Ended(producer_id, "open", start, last, records)


def found_in(batches: list[pa.RecordBatch]) -> list[Ended]:
    return sorted(
        Ended(one.producer_id, one.outcome, one.base_offset, one.last_offset, one.records)
        for one in judge_transactions(batches)
    )


@pytest.mark.parametrize("seed", range(6))
def test_aborted_and_open_transactions_are_found_wherever_the_log_is_cut(tmp_path: Path, seed: int):
    """As by a reader that goes through the log once; nothing else is found in such a log."""
    log = transactional_log(f"transactions {seed}")
    write_logs(tmp_path, {("orders", 0): log})
    wanted = sorted(expected(log))
    assert {one.outcome for one in wanted} == {"aborted", "open"}
    for split_bytes in (1, 1000, 1 << 30):
        batches = read_batches(tmp_path, split_bytes)
        assert found_in(batches) == wanted
        assert list(judge_producers(batches)) == []
        assert list(judge_logs(batches)) == []
    random.Random(seed).shuffle(batches := read_batches(tmp_path, 1))
    assert found_in(pa.Table.from_batches(batches).combine_chunks().to_batches()) == wanted


def test_committed_transactions_cost_two_rows_for_each_piece_at_most(tmp_path: Path):
    """All that are whole in a file are one row, and one that a file ends within is another: little to sort for 300."""
    from echoless.pipeline.audit.transaction_parts import parts_of_batches

    one = [Sent(7, 0, 0, 1, is_transactional=True), Sent(7, 0, -1, 1, marker=COMMIT)]
    log = [sent._replace(sequence=-1 if sent.marker else n) for n in range(300) for sent in one]
    write_logs(tmp_path, {("orders", 0): log})
    (joined,) = pa.Table.from_batches(read_batches(tmp_path)).combine_chunks().to_batches()
    files = len(list((tmp_path / "orders-0").glob("*.log")))
    assert files <= sum(part.num_rows for part in parts_of_batches([joined])) <= 2 * files < 100


def test_a_marker_of_an_older_epoch_is_a_problem(tmp_path: Path):
    """A fenced coordinator got through; a newer epoch is what fencing looks like."""
    newer = Sent(7, 3, 0, 2, is_transactional=True)
    for marker_epoch, kinds in ((2, [FindingKind.EPOCH_REGRESSION]), (3, []), (4, [])):
        directory = tmp_path / str(marker_epoch)
        write_logs(directory, {("orders", 0): [newer, Sent(7, marker_epoch, -1, 1, marker=COMMIT)]})
        judged = list(judge_transactions(read_batches(directory)))
        found = [finding for one in judged for finding in findings_about(one)]
        assert [one.kind for one in found] == kinds
        assert all(one.severity == Severity.PROBLEM for one in found)


@pytest.mark.parametrize("split_bytes", [1, 1 << 30])
def test_a_new_epoch_does_not_begin_in_an_open_transaction(tmp_path: Path, split_bytes: int):
    """The marker that ends the old one's was never written, or is lost; a marker between them is what fencing looks like."""
    old = [Sent(7, 0, 0, 2, is_transactional=True), Sent(7, 0, 2, 2, is_transactional=True)]
    new = [Sent(7, 1, 0, 2, is_transactional=True), Sent(7, 1, -1, 1, marker=COMMIT)]
    more = [Sent(7, 2, 0, 2, is_transactional=True), Sent(7, 2, -1, 1, marker=COMMIT)]
    ended = Sent(7, 1, -1, 1, marker=ABORT)
    for number, (between, expected_at) in enumerate((([], [4]), ([ended], []))):
        write_logs(tmp_path / str(number), {("orders", 0): [*old, *between, *new, *more]})
        judged = list(judge_transactions(read_batches(tmp_path / str(number), split_bytes)))
        lost = [one for one in judged if one.outcome == TransactionOutcome.UNENDED]
        assert [one.last_offset + 1 for one in lost] == expected_at
        for one in lost:
            (finding,) = findings_about(one)
            assert (finding.severity, finding.kind) == (Severity.PROBLEM, FindingKind.LOST_MARKER)
            assert (finding.producer_epoch, finding.base_offset) == (0, 0)


def test_an_open_transaction_is_a_note_with_its_producer_and_its_time(tmp_path: Path):
    """It says where readers of committed records stop."""
    log = [Sent(1, 0, 0, 3), Sent(7, 2, 0, 2, NOW_MS + 5, is_transactional=True)]
    write_logs(tmp_path, {("orders", 0): log})
    (judged,) = judge_transactions(read_batches(tmp_path))
    assert judged.outcome == TransactionOutcome.OPEN
    (note,) = findings_about(judged)
    assert (note.severity, note.kind) == (Severity.NOTE, FindingKind.OPEN_TRANSACTION)
    assert (note.producer_id, note.producer_epoch, note.timestamp) == (7, 2, NOW_MS + 5)
    assert "stop at offset 3" in note.text


def test_what_compaction_left_of_a_marker_ends_nothing(tmp_path: Path):
    """A control batch without a record; nor is an aborted transaction open whose records are gone."""
    from echoless.protocol.record_batch import compute_crc

    log = [Sent(7, 0, -1, 1, marker=ABORT), Sent(7, 0, 0, 1, is_transactional=True)]
    write_logs(tmp_path, {("orders", 0): [*log, Sent(7, 0, -1, 1, marker=ABORT)]})
    (segment,) = (tmp_path / "orders-0").glob("*.log")
    data = segment.read_bytes()
    empty = bytearray(data[-78:-17])
    empty[8:12] = (61 - 12).to_bytes(4, "big")
    empty[57:61] = bytes(4)
    empty[17:21] = compute_crc(empty).to_bytes(4, "big")
    segment.write_bytes(data[:-78] + empty)
    (judged,) = judge_transactions(read_batches(tmp_path))
    assert isinstance(judged, JudgedTransaction)
    assert (judged.outcome, judged.base_offset) == (TransactionOutcome.OPEN, 1)
