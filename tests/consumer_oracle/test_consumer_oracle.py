"""Random histories of the consumer protocol, answered by Apache Kafka 4.2 and by Echoless. `python -m tests.consumer_oracle` plays more."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.consumer_oracle.differences import NAMES
from tests.consumer_oracle.play import Contest, contest
from tests.support.fresh_seed import fresh_seed
from tests.toolchain import require

_SEED = 20261123
_HISTORIES = 40

pytestmark = [pytest.mark.kafka, pytest.mark.slow]


@pytest.fixture(scope="module")
def both() -> Iterator[Contest]:
    """Both brokers, for all tests."""
    require("java", "kafka-4")
    with contest() as found:
        yield found


@pytest.mark.parametrize("seed", [_SEED, None], ids=["fixed seed", "seed of the commit"])
def test_echoless_answers_as_kafka_but_for_the_named_differences(
    both: Contest, seed: int | None
) -> None:
    """Histories of a fixed seed, then of one that is new with each commit."""
    before = both.report.answers_compared
    report = both.run(fresh_seed() if seed is None else seed, range(_HISTORIES))
    assert not report.failures, str(report)
    assert report.answers_compared - before > 20 * _HISTORIES
    assert report.counts.keys() <= set(NAMES)
