"""Random compacted topics beside Apache Kafka: eight families of clients read exactly what the naive model leaves.

Long: `python -m tests.proofs --only compacted-readers`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.compatibility.compacted.contest import KAFKA_SETTINGS, contest
from tests.compatibility.compacted.shape import random_shape
from tests.support.apache_kafka import ApacheKafka
from tests.toolchain import require


@pytest.fixture
def kafka(tmp_path: Path) -> Iterator[ApacheKafka]:
    """A Kafka whose cleaner is in a hurry."""
    require("java", "kafka")
    kafka = ApacheKafka(tmp_path / "kafka", KAFKA_SETTINGS)
    kafka.start()
    yield kafka
    kafka.kill()


@pytest.mark.clients
@pytest.mark.kafka
@pytest.mark.slow
async def test_every_family_reads_what_the_model_leaves(kafka: ApacheKafka, tmp_path: Path) -> None:
    """Each of eight shapes in two topics, and Java reads the same from Kafka."""
    for number in (2, 5):
        directory = tmp_path / str(number)
        directory.mkdir()
        findings = await contest(kafka, 1, number, directory)
        assert not findings.problems, "\n".join(findings.problems)
        assert findings.counts["records sent"] > 2 * findings.counts["records left"] > 0


def test_a_shape_depends_on_its_seed_and_number_alone() -> None:
    """A finding of a long run is played again by its number."""
    assert random_shape(3, 7, 20_000, 10**12) == random_shape(3, 7, 20_000, 10**12)


@pytest.mark.parametrize("number", range(20))
def test_the_tail_is_younger_than_a_segment(number: int) -> None:
    """Its first batch closes the segment before it, and all of it fits into one; what is left is in order."""
    shape = random_shape(1, number, 2_000, 10**12)
    assert sum(map(len, shape.tail)) < 2_000 > max(map(len, shape.head))
    for with_tombstones in (False, True):
        left = shape.left(with_tombstones=with_tombstones)
        offsets = [record.offset for record in left]
        assert offsets == sorted({*offsets})
        head = [record for record in left if record.offset < shape.tail_offset]
        assert len({record.key for record in head}) == len(head)
        assert with_tombstones or all(record.value is not None for record in head)
