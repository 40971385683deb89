"""Plots as inline SVG: an area over time, and lines between numbers. Pure: knows nothing of Spark."""

from __future__ import annotations

import datetime
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from typing import Final, NamedTuple

_WIDTH: Final = 900
_HEIGHT: Final = 240
_LEFT: Final = 84
_RIGHT: Final = 16
_TOP: Final = 14
_BOTTOM: Final = 34
_TICKS: Final = 5
_RING: Final = 8
_STEPS: Final = (1, 2, 5, 10)
_SECOND_MS: Final = 1000
_DAY_MS: Final = 86_400_000
_THOUSAND: Final = 1000


class PlotLine(NamedTuple):
    """One segment of a plot."""

    x1: float
    y1: float
    x2: float
    y2: float
    style: str
    """Class in the report's style sheet."""
    title: str
    """Text that is shown when the pointer is over the line."""
    is_marked: bool = False
    """Whether the line gets a ring, to be seen however short it is."""


@dataclass(slots=True, frozen=True)
class _Scale:
    """Scale that maps values to positions on the page; the axis shows `start` to `end`."""

    start: float
    end: float
    page_start: float
    page_end: float
    is_whole: bool = False
    """Whether all values are integers."""

    def __call__(self, value: float) -> float:
        share = (value - self.start) / ((self.end - self.start) or 1)
        return round(self.page_start + share * (self.page_end - self.page_start), 2)

    def ticks(self) -> list[float]:
        """Returns round values for the axis."""
        step = _nice_step((self.end - self.start) / _TICKS)
        if self.is_whole:
            step = max(step, 1)
        first = math.ceil(self.start / step)
        return [n * step for n in range(first, math.floor(self.end / step) + 1)]


def _nice_step(least: float) -> float:
    """Returns the smallest of ... 0.5, 1, 2, 5, 10, 20 ... that is not below `least`."""
    if least <= 0:
        return 1
    power = 10.0 ** math.floor(math.log10(least))
    return next(step * power for step in _STEPS if step * power >= least)


def area_chart(label: str, points: Sequence[tuple[float, float]]) -> str:
    """Plots values over time (ms, ascending, each until the next), filled down to zero."""
    if not points:
        return _empty(label)
    x = _Scale(points[0][0], points[-1][0], _LEFT, _WIDTH - _RIGHT)
    highest = max(value for _, value in points)
    y = _Scale(0, highest or 1, _HEIGHT - _BOTTOM, _TOP)
    path = "".join(f"L{x(time)},{y(value)}" for time, value in points)
    shape = f"M{x(points[0][0])},{y(0)}{path}L{x(points[-1][0])},{y(0)}Z"
    line = "M" + path[1:]
    body = f'<path class="area" d="{shape}"/><path class="line" d="{line}"/>'
    return _framed(label, body, _time_axis(x) + _y_axis(y))


def line_chart(label: str, lines: Sequence[PlotLine]) -> str:
    """Plots lines between numbers on both axes."""
    if not lines:
        return _empty(label)
    xs = [value for line in lines for value in (line.x1, line.x2)]
    ys = [value for line in lines for value in (line.y1, line.y2)]
    x = _Scale(min(xs), max(xs), _LEFT, _WIDTH - _RIGHT, is_whole=True)
    y = _Scale(min(ys), max(ys), _HEIGHT - _BOTTOM, _TOP, is_whole=True)
    body = "".join(_drawn(line, x, y) for line in lines)
    return _framed(label, body, _x_axis(x, number_text) + _y_axis(y))


def _drawn(line: PlotLine, x: _Scale, y: _Scale) -> str:
    """Draws a line, with a ring around its middle if it is marked."""
    ring = ""
    if line.is_marked:
        middle = x((line.x1 + line.x2) / 2), y((line.y1 + line.y2) / 2)
        ring = f'<circle cx="{middle[0]}" cy="{middle[1]}" r="{_RING}"/>'
    return (
        f'<g class="{escape(line.style)}"><title>{escape(line.title)}</title>'
        f'<line x1="{x(line.x1)}" y1="{y(line.y1)}" x2="{x(line.x2)}" y2="{y(line.y2)}"/>{ring}</g>'
    )


def _framed(label: str, body: str, axes: str) -> str:
    return (
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{escape(label)}">'
        f"{axes}{body}</svg>"
    )


def _empty(label: str) -> str:
    return f'<p class="empty">{escape(label)}: nothing to show</p>'


def _y_axis(scale: _Scale) -> str:
    return "".join(
        f'<g class="tick"><line x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{scale(v)}" y2="{scale(v)}"/>'
        f'<text class="y" x="{_LEFT - 8}" y="{scale(v) + 4}">{number_text(v)}</text></g>'
        for v in scale.ticks()
    )


def _x_axis(scale: _Scale, text_of: Callable[[float], str]) -> str:
    bottom = _HEIGHT - _BOTTOM
    return "".join(
        f'<g class="tick"><line x1="{scale(v)}" x2="{scale(v)}" y1="{bottom}" y2="{bottom + 5}"/>'
        f'<text class="x" x="{scale(v)}" y="{bottom + 20}">{text_of(v)}</text></g>'
        for v in scale.ticks()
    )


def _time_axis(scale: _Scale) -> str:
    span = scale.end - scale.start
    pattern = "%Y-%m-%d" if span > _TICKS * _DAY_MS else "%H:%M:%S"

    def text(value: float) -> str:
        try:
            moment = datetime.datetime.fromtimestamp(value / _SECOND_MS, tz=datetime.UTC)
        except (OverflowError, ValueError, OSError):
            return str(int(value))  # beyond the calendar: a producer may send any timestamp
        return moment.strftime(pattern)

    times = [scale.start + span * part / _TICKS for part in range(_TICKS + 1)] if span else []
    bottom = _HEIGHT - _BOTTOM
    return "".join(
        f'<text class="x" x="{min(max(scale(v), _LEFT + 26), _WIDTH - _RIGHT - 26)}" '
        f'y="{bottom + 20}">{text(v)}</text>'
        for v in times or [scale.start]
    )


def number_text(value: float) -> str:
    """Writes a number in about three digits: 1.2M."""
    for unit in ("", "k", "M", "G"):
        if abs(value) < _THOUSAND:
            return f"{value:.4g}{unit}"
        value /= _THOUSAND
    return f"{value:.4g}T"
