"""One task's work: whatever is run again, and whenever it died, each row is stored once."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import pyarrow as pa
import pytest

from echoless.client.batch import now_ms
from echoless.client.sequencer import Identity
from echoless.client.topic_partition import TopicPartition
from echoless.pipeline.exactly_once import partition_writer
from echoless.pipeline.exactly_once.ends import record_end
from echoless.pipeline.exactly_once.entries import Begin
from echoless.pipeline.exactly_once.errors import (
    LedgerError,
    ReplayMismatchError,
    RowError,
    SinkError,
)
from echoless.pipeline.exactly_once.fingerprint import Fingerprint, is_older
from echoless.pipeline.exactly_once.later_attempt import Resumption
from echoless.pipeline.exactly_once.ledger_identity import open_files
from echoless.pipeline.exactly_once.partition_writer import Written, write_partition
from tests.pipeline.exactly_once.attempts import (
    PARTITIONS,
    TOPIC,
    Attempts,
    all_values,
    location,
    rows,
    rows_for,
)
from tests.pipeline.exactly_once.broker_thread import BrokerThread


def test_each_row_is_stored_once_and_in_order(attempts, broker):
    """Rows of a key keep their order."""
    assert attempts.run([rows(1000)]) == Written(0, 1000, 0)
    for index in range(PARTITIONS):
        values = [record.value for record in broker.read(TOPIC, index)]
        assert values == sorted(values)
    assert attempts.stored() == all_values(1000)


def test_a_batch_that_ended_stores_nothing_again(attempts):
    """The whole batch runs again after the driver died."""
    attempts.run([rows(2000)])
    again = [rows(1200), rows(800, 1200)]
    assert attempts.run(again, run="after a restart") == Written(0, 2000, 2000)
    assert attempts.stored() == all_values(2000)


def test_an_attempt_that_died_before_its_end_is_repeated_without_storing(attempts):
    """All records are acknowledged, which only the brokers know."""
    attempts.run([rows(1000)])
    attempts.lose_end()
    assert attempts.run([rows(1000)]) == Written(0, 1000, 1000)
    assert attempts.stored() == all_values(1000)


@pytest.mark.usefixtures("small_chunks")
def test_an_attempt_that_died_in_the_middle_is_completed(attempts):
    """Its stored rows stay, the rest is added."""
    attempts.die(rows(500), stored=1)
    written = attempts.run([rows(1000)])
    assert written.rows == 1000
    assert 0 < written.rows_found <= 500
    assert attempts.stored() == all_values(1000)


@pytest.mark.usefixtures("small_chunks")
def test_attempts_may_die_again_and_again(attempts):
    """Each one comes a little further."""
    for count in (200, 500, 700):
        attempts.die(rows(count), stored=count // 2)
    attempts.run([rows(1000)])
    assert attempts.stored() == all_values(1000)


def test_the_next_batch_goes_on_under_the_same_producer_id(attempts):
    """A producer id per Spark partition, not per batch: brokers keep every id for a day."""
    attempts.run([rows(1000)])
    attempts.run([rows(500, 1000)], batch_id=1)
    assert attempts.begins(1)[0].identity == attempts.begins(0)[0].identity
    before = {(s.topic, s.partition): s.next_sequence for s in attempts.end(0).state.partitions}
    assert {
        (s.topic, s.partition): s.sequence for s in attempts.begins(1)[0].sequence_ranges
    } == before
    assert attempts.stored() == all_values(1500)


def test_a_replay_with_rows_in_another_order_is_refused(attempts):
    """The stored rows are compared before anything is sent."""
    attempts.run([rows(1000)])
    attempts.lose_end()
    other = rows(1000, swapped=320)
    with pytest.raises(
        ReplayMismatchError, match=r"sink sink, batch 0, Spark partition 0.*row 320 is"
    ):
        attempts.run([other])
    assert attempts.stored() == all_values(1000)


@pytest.mark.usefixtures("small_chunks")
def test_a_refused_replay_has_sent_nothing(attempts, broker):
    """Not even to partitions where it sees no difference."""
    attempts.die(rows(500), stored=400)
    stored = attempts.stored()
    with pytest.raises(ReplayMismatchError, match="sort within partitions"):
        attempts.run([rows(1000, swapped=0)])
    assert attempts.stored() == stored


def test_a_replay_with_fewer_rows_is_refused(attempts):
    """It says how many are stored."""
    attempts.run([rows(1000)])
    attempts.lose_end()
    with pytest.raises(ReplayMismatchError, match="more are stored"):
        attempts.run([rows(10)])


@pytest.mark.parametrize("other", [rows(999), rows(1001), rows(1000, 1), rows(1000, swapped=320)])
def test_other_rows_for_a_batch_that_ended_are_refused(attempts, other):
    """The fingerprints tell."""
    attempts.run([rows(1000)])
    with pytest.raises(ReplayMismatchError):
        attempts.run([other])
    assert attempts.stored() == all_values(1000)


def test_a_batch_with_headers_that_release_0_2_has_ended_is_recognised(attempts, monkeypatch):
    """Its fingerprints are compared as it has made them, and tell."""
    lists = pa.array([[{"key": "h", "value": value}] for value in all_values(100)])
    with monkeypatch.context() as patches:
        older = partial(Fingerprint, True)
        patches.setattr(partition_writer, "Fingerprint", lambda is_older: older())
        attempts.run([rows(100).append_column("headers", lists)])
    assert all(is_older(one.fingerprint) for one in attempts.end().targets)
    assert attempts.run([rows(100).append_column("headers", lists)]) == Written(0, 100, 100)
    other = rows(100).append_column("headers", lists[::-1])
    with pytest.raises(ReplayMismatchError):
        attempts.run([other])


def test_a_time_is_given_to_a_batch_once(attempts, broker):
    """A replay sends the time of the first attempt, and so the same bytes."""
    now = now_ms()
    attempts.run([rows(10)], clock_ms=lambda: now)
    attempts.lose_end()
    attempts.run([rows(20)], clock_ms=lambda: now + 1_000)
    times = {
        record.timestamp for index in range(PARTITIONS) for record in broker.read(TOPIC, index)
    }
    assert times == {now}


def test_a_producer_forgotten_between_batches_gets_a_new_epoch(attempts, broker):
    """The epoch fences everything still in transit under the old one."""
    attempts.run([rows(100)])
    broker.forget_producers()
    attempts.run([rows(100, 100)], batch_id=1)
    producer_id, epoch = attempts.begins(0)[0].identity
    assert attempts.begins(1)[0].identity == Identity(producer_id, epoch + 1)
    assert attempts.stored() == all_values(200)


@pytest.mark.usefixtures("small_chunks")
@pytest.mark.slow
def test_a_producer_forgotten_before_a_replay_is_counted_in_the_log(attempts, broker):
    """The stored rows are read there; the rest continues under numbers that the ledger has first."""
    attempts.run([rows(100)])
    attempts.die(rows(300, 100), stored=150, batch_id=1)
    stored = len(attempts.stored()) - 100
    broker.forget_producers()
    attempts.run([rows(1000, 100)], batch_id=1)
    assert attempts.stored() == all_values(1100)
    first, second = attempts.begins(1)
    assert second.identity.producer_epoch == first.identity.producer_epoch + 1
    assert sum(sequence_range.rows_before for sequence_range in second.sequence_ranges) == stored
    attempts.lose_end(1)
    assert attempts.run([rows(1000, 100)], batch_id=1).rows_found == 1000
    assert attempts.stored() == all_values(1100)


@pytest.mark.slow
def test_twins_store_each_row_once(attempts):
    """A speculative copy of a task runs at the same time."""
    written: list[Written] = []
    twins = [
        threading.Thread(target=lambda: written.append(attempts.run([rows(20_000)])))
        for _ in range(3)
    ]
    for twin in twins:
        twin.start()
    for twin in twins:
        twin.join()
    assert [one.rows for one in written] == [20_000] * 3
    assert attempts.stored() == all_values(20_000)


def test_keys_go_where_they_went_when_the_batch_began(attempts, broker):
    """A topic that has grown in between does not matter to a replay."""
    attempts.run([rows(1000)])
    attempts.lose_end()
    begin = attempts.begins()[0]
    assert begin.partition_counts == {TOPIC: PARTITIONS}
    assert {s.target for s in begin.sequence_ranges} == {TopicPartition(TOPIC, i) for i in range(3)}


@pytest.mark.slow
def test_an_attempt_left_behind_by_later_batches_is_refused(attempts):
    """Its entries are cleaned away; it must not begin again."""
    for batch_id in range(1, 15):
        attempts.run([rows(10, batch_id * 10)], batch_id=batch_id)
    with pytest.raises(LedgerError, match="the ledger is at batch 14"):
        attempts.run([rows(10, 10)], batch_id=1)
    assert attempts.stored() == all_values(140, 10)


def test_a_ledger_of_another_query_is_refused(attempts):
    """A new checkpoint counts batches from 0 again."""
    attempts.run([rows(10)])
    with pytest.raises(LedgerError, match="belongs to query query, this is other"):
        write_partition(attempts.options, location()._replace(query_id="other"), [rows(10)])


@pytest.mark.usefixtures("small_chunks")
@pytest.mark.parametrize("has_ended", [False, True])
def test_a_batch_that_an_older_version_began_is_continued(attempts, has_ended):
    """Its ledger has no slots, and its entries no origin: the task of its number adopts it."""
    attempts.run([rows(100)])
    if has_ended:
        attempts.run([rows(900, 100)], batch_id=1)
    else:
        attempts.die(*(rows(200, first) for first in (100, 300)), stored=300, batch_id=1)
    attempts.make_old()
    pieces = [rows(200, 100), *(rows(100, first) for first in range(300, 1000, 100))]
    assert attempts.run(pieces, batch_id=1, run="new").rows_found >= 200
    assert attempts.run(pieces, batch_id=1, run="newer").rows_found == 900
    assert attempts.stored() == all_values(1000)


def test_a_task_without_rows_does_nothing(attempts):
    """Not even in the ledger."""
    assert attempts.run([rows(0)]) == Written(0, 0, 0)
    assert not list(attempts.ledger.rglob("*.json"))


def test_a_batch_that_did_not_end_holds_up_the_next(attempts):
    """It ran with other Spark partitions, or not at all to its end."""
    attempts.run([rows(10)])
    attempts.lose_end()
    with pytest.raises(SinkError, match="batch 0 has begun and not ended"):
        attempts.run([rows(10, 10)], batch_id=1)


@pytest.mark.slow
def test_twins_with_different_rows_are_found_out(attempts):
    """A twin acknowledged for the other's rows reads back before it reports its end."""
    outcomes: list[object] = []

    def run(given: object) -> None:
        try:
            outcomes.append(attempts.run([given]))
        except ReplayMismatchError as error:
            outcomes.append(error)

    orders = (rows(20_000), rows(20_000, swapped=19_000))
    twins = [threading.Thread(target=run, args=(given,)) for given in orders]
    for twin in twins:
        twin.start()
    for twin in twins:
        twin.join()
    assert len(outcomes) == 2
    assert any(isinstance(one, ReplayMismatchError) for one in outcomes)
    assert len(attempts.stored()) == 20_000


def test_what_another_attempt_stored_meanwhile_is_read_back(attempts, monkeypatch):
    """It was not there when this attempt looked, so nothing was compared before it sent."""
    attempts.run([rows(1000)])
    attempts.lose_end()
    monkeypatch.setattr("echoless.pipeline.exactly_once.numbering.resume_batch", _find_nothing)
    assert attempts.run([rows(1000)]).rows == 1000
    attempts.lose_end()
    with pytest.raises(ReplayMismatchError, match="at the same time has sent other rows"):
        attempts.run([rows(1000, swapped=320)])
    assert attempts.stored() == all_values(1000)


def test_what_was_deleted_cannot_be_compared(attempts, broker):
    """A replay is refused rather than believed."""
    attempts.run([rows(1000)])
    attempts.lose_end()
    broker.delete_records(TOPIC, PARTITIONS)
    with pytest.raises(SinkError, match=r"cannot be read back: .*are deleted"):
        attempts.run([rows(1000)])


def test_a_batch_does_not_move_to_another_cluster(attempts, tmp_path):
    """A batch begun there ends there; the next batch gets a new id."""
    attempts.run([rows(100)])
    attempts.run([rows(10, 100)], batch_id=1)
    attempts.lose_end(1)
    with BrokerThread(tmp_path / "other", num_partitions=PARTITIONS) as other:
        elsewhere = Attempts(other, attempts.ledger)
        with pytest.raises(SinkError, match="was begun on cluster"):
            elsewhere.run([rows(10, 100)], batch_id=1)
        attempts.run([rows(10, 100)], batch_id=1)
        elsewhere.run([rows(10, 110)], batch_id=2)
        assert elsewhere.stored() == all_values(10, 110)
    assert elsewhere.begins(2)[0].sequence_ranges[0].sequence == 0
    assert attempts.stored() == all_values(110)


def test_a_topic_that_was_deleted_holds_nothing_up(attempts, broker):
    """Rows went there in an earlier batch; it is not made again by asking for it."""
    options = dataclasses.replace(attempts.options, topic=None)
    elsewhere = pa.record_batch({"topic": ["gone", TOPIC], "value": ["1", "2"]})
    attempts.end_batch(write_partition(options, location(0), [elsewhere]))
    broker.delete_topic("gone")
    attempts.run([rows(10)], batch_id=1)
    attempts.lose_end(1)
    attempts.run([rows(10)], batch_id=1)
    assert broker.topics() == {TOPIC}
    assert len(attempts.stored()) == 11


@pytest.mark.parametrize("forgets", [False, True])
def test_an_old_copy_of_the_ledger_is_noticed(attempts, broker, forgets):
    """LeaderQueries have more records than it knows, or a later epoch."""
    attempts.run([rows(100)])
    if forgets:
        broker.forget_producers()
    attempts.run([rows(100, 100)], batch_id=1)
    attempts.lose_batch(1)
    with pytest.raises(SinkError, match="more records of producer 0 than the ledger"):
        attempts.run([rows(100, 100)], batch_id=1)
    assert attempts.stored() == all_values(200)


@pytest.mark.usefixtures("small_chunks")
def test_a_row_may_name_a_partition_that_the_topic_got_meanwhile(attempts, broker):
    """The batch failed for want of it; keys stay where they were."""
    given = [rows(200), rows_for(5, 100, 200)]
    with pytest.raises(RowError, match="partition 5 of orders, which has 3"):
        attempts.run(given)
    broker.grow(TOPIC, 6)
    attempts.run(given)
    assert [record.value for record in broker.read(TOPIC, 5)] == all_values(100, 200)
    assert attempts.stored() == all_values(200)


def test_batches_have_numbers_from_0(attempts):
    """The names of the entries have no room for others."""
    with pytest.raises(LedgerError, match="batches have numbers from 0"):
        attempts.run([rows(10)], batch_id=-1)


def _find_nothing(_place: Any, begins: Sequence[Begin], *_: Any) -> Resumption:
    """Pretends that the other attempt has not stored anything yet."""
    return Resumption(begins[-1].identity, is_known=True, rows={}, leader_states={})


def test_an_attempt_that_did_not_count_has_written_a_part(attempts):
    """Spark closes the rows of a task that fails before the sink; it looks as if they were all."""
    assert attempts.run_in_vain([rows(400)]).written == Written(0, 400, 0)
    assert attempts.run([rows(1000)]) == Written(0, 1000, 400)
    assert attempts.stored() == all_values(1000)
    assert attempts.run([rows(50, 1000)], 1) == Written(0, 50, 0)


def test_an_end_is_put_down_once(attempts):
    """Two drivers may have attempts that count; if they have written the same, both are right."""
    first, second = (attempts.run_in_vain([rows(100)]).end for _ in range(2))
    assert first is not None
    assert second is not None
    for end in (first, second):
        record_end(open_files(attempts.options), location(), end)
    assert attempts.end() == first
    with pytest.raises(ReplayMismatchError):
        record_end(open_files(attempts.options), location(), replace(second, rows=99))
