"""StreamFigures, and how they are shown."""

from __future__ import annotations

import io
import urllib.request

import pytest
from rich.console import Console

from echoless.pipeline.streaming.figures import BatchFigures, StreamFigures
from echoless.pipeline.streaming.metrics import FiguresCollector, MetricsServer
from echoless.pipeline.streaming.terminal import ProgressLine, summary


def _figures() -> StreamFigures:
    figures = StreamFigures(lag={"orders-0": 3, "orders-1": 1200})
    figures.add(BatchFigures(batch_id=4, records=1500, bytes=2_000_000, repeats=10))
    figures.add(BatchFigures(batch_id=5, records=500, bytes=500_000, repeats=0))
    return figures


def test_batches_are_added_up() -> None:
    """Records, bytes, repeats, and which batch was the last."""
    figures = _figures()
    assert (figures.records, figures.bytes, figures.repeats) == (2000, 2_500_000, 10)
    assert (figures.batches, figures.batch_id, figures.lag_total) == (2, 5, 1203)
    assert figures.records_per_s > 0


def test_a_line_says_how_far_it_came() -> None:
    """Records, bytes, rate, and what waits where that is known."""
    line = ProgressLine("orders", _figures(), Console(file=io.StringIO()))
    assert line.text().startswith("orders: 2,000 records, 2.5 MB, ")
    assert line.text().endswith("/s, 1,203 records waiting, 0 s left")
    assert "waiting" not in ProgressLine("orders", StreamFigures()).text()


def test_a_person_sees_one_line_that_changes() -> None:
    """On a terminal; a file gets plain lines, and not one each second."""
    screen, file = io.StringIO(), io.StringIO()
    console = Console(file=screen, force_terminal=True, width=100, legacy_windows=False)
    with ProgressLine("orders", _figures(), console) as line:
        line.update()
    assert "orders: 2,000 records" in screen.getvalue()
    with ProgressLine("orders", _figures(), Console(file=file)) as line:
        line.update()
    assert not file.getvalue()


def test_the_end_says_what_was_stored_already() -> None:
    """It also says what still waits, if the run was stopped."""
    text = summary("orders", _figures())
    assert "2,000 records, 2.5 MB, 2 batches in" in text
    assert text.endswith("10 of them were stored already; 1,203 records waiting")


@pytest.mark.slow
def test_metrics_are_served() -> None:
    """They are in Prometheus's format, with each part of the lag separately."""
    collector = FiguresCollector("mirror", "orders", _figures())
    with (
        MetricsServer("127.0.0.1:0", collector) as server,
        urllib.request.urlopen(f"http://{server.address}/metrics") as answer,
    ):
        text = answer.read().decode()
    assert 'echoless_mirror_records_total{name="orders"} 2000.0' in text
    assert 'echoless_mirror_lag{name="orders",source="orders-1"} 1200.0' in text
