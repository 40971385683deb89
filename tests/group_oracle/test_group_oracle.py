"""Random histories of a group, answered by Apache Kafka and by Echoless. `python -m tests.group_oracle` plays more."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.group_oracle.differences import NAMES
from tests.group_oracle.run import Contest, contest
from tests.support.fresh_seed import fresh_seed
from tests.toolchain import require

_SEED = 20261122
_HISTORIES = 24

pytestmark = [pytest.mark.kafka, pytest.mark.slow]


@pytest.fixture(scope="module")
def both() -> Iterator[Contest]:
    """Both brokers, for all tests."""
    require("java", "kafka")
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
    assert report.answers_compared - before > _HISTORIES
    assert report.counts.keys() <= set(NAMES)
