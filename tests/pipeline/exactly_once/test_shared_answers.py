"""Answers of leaders are shared within one run of a batch, for a short time."""

from __future__ import annotations

import pytest

from echoless.client.sequencer import LeaderEntry
from echoless.client.topic_partition import TopicPartition
from echoless.pipeline.exactly_once import shared_answers
from echoless.pipeline.exactly_once.shared_answers import LeaderAnswer, SharedAnswers
from tests.pipeline.exactly_once.attempts import all_values, rows

FIRST, SECOND = TopicPartition("orders", 0), TopicPartition("orders", 1)
ANSWER = LeaderAnswer(7, {3: LeaderEntry(0, 99)})
RUN = ("sink", "query", 4, "run")


def test_an_answer_is_for_the_tasks_of_one_run() -> None:
    """In the next run producers have gone on."""
    answers = SharedAnswers()
    answers.add(RUN, {FIRST: ANSWER})
    assert answers.of(RUN, [FIRST, SECOND]) == {FIRST: ANSWER}
    other = ("sink", "query", 5, "other run")
    assert answers.of(other, [FIRST]) == {}
    answers.add(other, {SECOND: ANSWER})
    assert answers.of(RUN, [FIRST]) == {}


def test_an_old_answer_is_not_shared(monkeypatch: pytest.MonkeyPatch) -> None:
    """An attempt that reads back begins at its log end, and would read for long."""
    monkeypatch.setattr(shared_answers, "SHARED_S", 0)
    answers = SharedAnswers()
    answers.add(RUN, {FIRST: ANSWER})
    assert answers.of(RUN, [FIRST]) == {}


@pytest.mark.usefixtures("small_chunks")
def test_a_second_attempt_asks_for_itself(attempts, broker):
    """The first has sent since the answer that the run shares."""
    attempts.run([rows(100)], 0, run="run 0")
    attempts.die(rows(500, 100), stored=300, batch_id=1, run="run 1")
    asked = broker.running.broker.metrics.requests["describe_producers"]
    assert attempts.run([rows(500, 100)], 1, run="run 1").rows_found >= 200
    assert attempts.stored() == all_values(600)
    assert broker.running.broker.metrics.requests["describe_producers"] > asked


def test_an_old_copy_of_the_ledger_is_noticed_in_another_run(attempts):
    """The answers of the run in which the batch was written do not count there."""
    attempts.run([rows(100)], 0, run="run 0")
    attempts.run([rows(100, 100)], 1, run="run 1")
    attempts.lose_batch(1)
    with pytest.raises(Exception, match="has more records of producer"):
        attempts.run([rows(100, 100)], 1, run="run 2")
