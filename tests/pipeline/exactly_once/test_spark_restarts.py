"""Streams from Spark's own Kafka source, which numbers the tasks of a batch otherwise after a restart.

The long form, of topics of any names with 1 to 12 partitions, here and at Apache Kafka: `python -m tests.proofs --only restarts`.
"""

from __future__ import annotations

import pytest

from tests.pipeline.exactly_once.kafka_restarts import Restarts, Source
from tests.pipeline.exactly_once.text_stream import DATA_SOURCE, FOREACH_BATCH
from tests.toolchain import require

pytestmark = pytest.mark.spark


@pytest.mark.parametrize(
    ("way", "source"),
    [
        (FOREACH_BATCH, Source(("small",), 3, "out")),
        (DATA_SOURCE, Source(("small",), 4, "out")),
        (DATA_SOURCE, Source(("left", "right"), 2, "out")),
    ],
)
def test_a_stream_from_kafka_is_restarted_wherever_it_died(spark, broker, tmp_path, way, source):
    """After a whole batch, and after the tasks that could begin before another one failed."""
    require("java", "spark-kafka")
    assert source.is_numbered_anew
    assert Restarts(spark, broker.address, tmp_path, way, source).play() is None
