"""The reader beside Spark's own Kafka source: same rows for any options. `make proof` plays hundreds of sets."""

from __future__ import annotations

import pytest

from tests.pipeline.reading.option_sets import Compared
from tests.toolchain import require

_SEED, _SETS = 31, 5


@pytest.mark.spark
@pytest.mark.slow
def test_random_options_give_the_same_rows(spark, start_echoless):
    """Jobs and streams; a seed that is new each time is for the proof, since Spark's source is not ours."""
    require("java", "spark-kafka")
    with Compared(spark, start_echoless().kafka_address) as compared:
        assert compared.run(_SEED, _SETS) == []
