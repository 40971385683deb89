"""Random histories of groups, fetch sessions and transactions, answered by Apache Kafka and by Echoless. `python -m tests.oracle groups` plays more."""

from __future__ import annotations

from typing import Any

import pytest

from tests.oracle.consumers.script import ConsumersScript
from tests.oracle.contest import contest
from tests.oracle.groups.script import GroupsScript
from tests.oracle.script import Script
from tests.oracle.sessions.script import SessionsScript
from tests.oracle.transactions.script import TransactionsOf4Script, TransactionsScript
from tests.support.apache_kafka import KafkaVersion
from tests.support.fresh_seed import fresh_seed
from tests.toolchain import require

pytestmark = [pytest.mark.kafka, pytest.mark.slow]


@pytest.mark.parametrize(
    ("script", "seed", "histories", "answers_min"),
    [
        (GroupsScript(), 20261122, 24, 1),
        (ConsumersScript(), 20261123, 40, 20),
        (SessionsScript(), 20261126, 20, 40),
        (TransactionsScript(), 20261128, 12, 20),
        (TransactionsOf4Script(), 20261128, 12, 20),
    ],
    ids=[
        "classic groups",
        "consumer protocol",
        "fetch sessions",
        "transactions",
        "transactions of both generations",
    ],
)
def test_echoless_answers_as_kafka_but_for_the_named_differences(
    script: Script[Any], seed: int, histories: int, answers_min: int
) -> None:
    """Histories of a fixed seed, and as many that are new with each commit."""
    require("java", "kafka-4" if script.kafka_version is KafkaVersion.V4 else "kafka")
    seeds = [seed, fresh_seed()]
    with contest(script) as both:
        report = both.run(range(histories), seeds)
    assert not report.failures, report.summary(failures_max=10)
    assert report.answers_compared > answers_min * histories * len(seeds)
    assert report.counts.keys() <= set(script.differences)
