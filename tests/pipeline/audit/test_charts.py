"""Plots are well-formed and show what they are given."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest

from echoless.pipeline.audit.charts import PlotLine, area_chart, line_chart, number_text


def test_lines_carry_their_titles_and_no_markup():
    """Names of topics come from outside."""
    chart = line_chart("a <b>", [PlotLine(0, 0, 5, 5, "problem", "<x> & y", is_marked=True)])
    drawn = ElementTree.fromstring(chart)
    assert drawn.get("aria-label") == "a <b>"
    (group,) = [g for g in drawn.iter("g") if g.get("class") == "problem"]
    assert group.findtext("title") == "<x> & y"
    assert group.find("circle") is not None


@pytest.mark.parametrize(
    "points", [[(1.0, 0.0)], [(5.0, 3.0)], [(0.0, 1e-9), (1e15, 1e18)], [(0.0, 0.01), (9.0, 0.04)]]
)
def test_any_values_make_a_plot(points: list[tuple[float, float]]):
    """One point, nothing but zeros, years that no calendar knows."""
    drawn = ElementTree.fromstring(area_chart("any", points))
    assert len(list(drawn.iter("path"))) == 2
    assert len(list(drawn.iter("line"))) < 20


def test_nothing_is_said_to_be_nothing():
    """Instead of an empty frame."""
    assert "nothing to show" in area_chart("records", [])
    assert "nothing to show" in line_chart("producer 7", [])


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0"), (999, "999"), (1000, "1k"), (1_250_000, "1.25M"), (0.1 + 0.2, "0.3"), (2e13, "20T")],
)
def test_numbers_are_short(value: float, text: str):
    """Four digits at most."""
    assert number_text(value) == text
