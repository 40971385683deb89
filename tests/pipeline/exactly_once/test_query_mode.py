"""Ways to run a query that would lose rows are refused by name."""

from __future__ import annotations

from pathlib import Path

import pytest

from echoless.pipeline.exactly_once.errors import OptionError, SinkError
from echoless.pipeline.exactly_once.query_mode import (
    check_checkpoint,
    check_not_refreshed,
    check_options,
    check_reports,
)


def checkpoint(directory: Path, *, offsets: int, commits: int) -> str:
    """A checkpoint whose batches are numbered from 0; Spark's checksums lie beside them."""
    for name, count in (("offsets", offsets), ("commits", commits)):
        (directory / name).mkdir()
        for batch in range(count):
            (directory / name / str(batch)).touch()
            (directory / name / f".{batch}.crc").touch()
    return str(directory)


@pytest.mark.parametrize(("offsets", "commits"), [(1, 0), (12, 11)])
def test_a_micro_batch_has_offsets_that_are_not_committed(tmp_path, offsets, commits):
    """Spark writes them before it makes the writer."""
    check_checkpoint(checkpoint(tmp_path, offsets=offsets, commits=commits))


@pytest.mark.parametrize("batches", [0, 1, 12])
def test_a_query_without_micro_batches_is_refused(tmp_path, batches):
    """At its first start, and after others."""
    with pytest.raises(OptionError, match="continuous"):
        check_checkpoint(checkpoint(tmp_path, offsets=batches, commits=batches))


def test_a_full_refresh_of_a_pipeline_is_refused(tmp_path):
    """It begins a checkpoint beside the old one, whose ledger has stored the rows; a ledger that is there was accepted."""
    flow = tmp_path / "_checkpoints" / "orders" / "lines"
    (flow / "0" / "ledger" / "stream").mkdir(parents=True)
    (flow / "1").mkdir()
    check_not_refreshed(str(flow / "0"), "ledger")
    with pytest.raises(
        OptionError, match=r"full refresh: .*/1 .*acceptNewLedger=true.* delete .*/1"
    ):
        check_not_refreshed(str(flow / "1"), "ledger")
    (flow / "1" / "ledger" / "stream").mkdir(parents=True)
    check_not_refreshed(str(flow / "1"), "ledger")
    (tmp_path / "0" / "ledger" / "stream").mkdir(parents=True)
    check_not_refreshed(str(tmp_path / "1"), "ledger")


def test_tasks_that_have_not_reported_are_not_committed():
    """A query that went from micro-batches to a continuous trigger with a batch in progress."""
    check_reports([object(), object()])
    with pytest.raises(SinkError, match="the rows would be lost"):
        check_reports([None, None])


@pytest.mark.parametrize(
    "name", ["asyncProgressTrackingEnabled", "_asyncProgressTrackingOverrideSinkSupportCheck"]
)
def test_asynchronous_progress_tracking_is_refused_in_any_case(name):
    """Its other options do no harm while it is off."""
    check_options({name.lower(): "false"})
    with pytest.raises(OptionError, match="asynchronous progress tracking"):
        check_options({name.lower(): "true"})
