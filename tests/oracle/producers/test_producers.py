"""The same random histories to Apache Kafka and Echoless; `python -m tests.oracle producers` runs more."""

from __future__ import annotations

import pytest

from tests.oracle.contest import contest
from tests.oracle.producers.broken_broker import BREAKS, VARIABLE
from tests.oracle.producers.differences import IDS_AT_ONCE, NAMES
from tests.oracle.producers.script import ProducersScript
from tests.support.fresh_seed import fresh_seed
from tests.toolchain import require

pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.time_limit(600)]

SEED = 271_439_300_115_167
"""With it, 200 histories hold every named difference."""
HISTORIES = 200
SCRIPT = ProducersScript()


@pytest.fixture(autouse=True)
def _needs_kafka() -> None:
    require("java", "kafka")


def test_echoless_answers_as_kafka_but_for_the_named_differences(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Every answer, every producer and every stored byte is Kafka's, or a difference has a name.

    200 histories, and 200 that are new with each commit.
    """
    with contest(SCRIPT) as both:
        report = both.run(range(HISTORIES), [SEED, fresh_seed()])
    with capsys.disabled():
        print("\n" + report.summary(failures_max=0))
    assert not report.failures, report.summary(failures_max=2)
    timed = {IDS_AT_ONCE}  # depends on how soon Kafka's controller issues ids
    assert set(NAMES) - timed <= set(report.counts), "a named difference never occurred"


def test_neither_log_ins_nor_acls_change_an_answer() -> None:
    """Asked over TLS by a user with the rights for it, Echoless answers as without all of that."""
    with contest(SCRIPT, is_secured=True) as both:
        report = both.run(SCRIPT.numbers_of_one_variant(60), [SEED])
    assert not report.failures, report.summary(failures_max=2)
    assert report.answers_compared > 0


def test_two_kafkas_never_differ() -> None:
    """The model of Kafka predicts Kafka, and the comparison adds no difference."""
    with contest(SCRIPT, kafka_only=True) as both:
        report = both.run(SCRIPT.numbers_of_one_variant(60), [SEED])
    assert not report.failures, report.summary(failures_max=2)
    assert set(report.counts) <= {IDS_AT_ONCE}


@pytest.mark.parametrize("decision", BREAKS)
def test_a_wrong_decision_is_seen(decision: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """An Echoless with one broken decision fails within a few dozen histories."""
    monkeypatch.setenv(VARIABLE, decision)
    with contest(SCRIPT, module="tests.oracle.producers.broken_broker") as both:
        assert both.run(SCRIPT.numbers_of_one_variant(60), [SEED]).failures
