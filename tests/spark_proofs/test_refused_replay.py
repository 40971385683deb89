"""A query whose replay differs: the stored rows stay, and the query ends with the reason."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import pytest

from tests.spark_proofs.numbered_source import PARTITIONS, write_source
from tests.spark_proofs.query import DATA_SOURCE, FOREACH_BATCH, Options
from tests.spark_proofs.spark_cluster import Driver
from tests.spark_proofs.stored_numbers import read_numbers
from tests.spark_proofs.targets import TOPIC, start_echoless
from tests.toolchain import require

pytestmark = [pytest.mark.spark, pytest.mark.slow]

BATCHES = 2


@pytest.mark.parametrize("sink", [DATA_SOURCE, FOREACH_BATCH])
def test_a_replay_with_other_values_is_refused(tmp_path: Path, sink: str) -> None:
    """The driver died between the last batch's write and its commit, and the rows are random."""
    require("java")
    records = write_source(tmp_path / "source", batches=BATCHES, rows_per_file=500)
    (tmp_path / "wires").mkdir()
    with start_echoless(tmp_path / "target", seed=1) as target:
        target.create_topic(PARTITIONS)
        options = Options(
            master="local[2]",
            sink=sink,
            bootstrap_servers=target.bootstrap,
            topic=TOPIC,
            source=str(tmp_path / "source"),
            wires=str(tmp_path / "wires"),
            checkpoint=str(tmp_path / "checkpoint"),
            settings={},
            sink_options={},
            is_random=True,
        )
        log = tmp_path / "drivers.log"
        assert Driver(log, asdict(options)).wait() == 0, log.read_text()
        # What a SIGKILL at that moment leaves.
        (tmp_path / "checkpoint" / "commits" / str(BATCHES - 1)).unlink()
        assert Driver(log, asdict(options)).wait() != 0
        assert "ReplayMismatchError" in log.read_text()
        stored = read_numbers(target.client, TOPIC, PARTITIONS)
        assert sum(map(len, stored)) == records
