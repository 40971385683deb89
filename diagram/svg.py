"""A diagram as an SVG file: light and dark, without scripts, fonts or anything external.

From left to right: the time since the first step, the producers, the brokers, and beside them the
decisions and the window each was based on. At the bottom: what the recording saw stored.
"""

from __future__ import annotations

from typing import Final

from echoless.diagram.arrows import draw_answer, draw_request
from echoless.diagram.canvas import Canvas, text_width
from echoless.diagram.layout import Lanes, arrange, head_width
from echoless.diagram.pills import draw_stored
from echoless.diagram.steps import (
    Diagram,
    Folded,
    Lifeline,
    Remark,
    RoundTrip,
    Step,
    WindowEntry,
)
from echoless.diagram.style import stylesheet
from echoless.diagram.verdicts import draw_verdicts
from echoless.diagram.wording import counts_text, fate_text, folded_text, has_answer, partition_text

_MARGIN: Final = 24
_HEAD_TOP: Final = 74
_HEAD_HEIGHT: Final = 40
_FIRST_STEP: Final = _HEAD_TOP + _HEAD_HEIGHT + 18
_NOTE_HEIGHT: Final = 44
_STORED_SHOWN_MAX: Final = 8
_STORED_ROW: Final = 46


def render(diagram: Diagram, title: str = "", theme: str | None = None) -> str:
    """The file's text."""
    picture = _Picture(diagram, title or "Producer and broker, step by step", theme)
    return picture.draw()


class _Picture:
    def __init__(self, diagram: Diagram, title: str, theme: str | None) -> None:
        self._theme = theme
        self._diagram = diagram
        self._title = title
        self._columns: Lanes = arrange(diagram)
        self._canvas = Canvas()

    def draw(self) -> str:
        bottom = _FIRST_STEP + sum(self._height(step) for step in self._diagram.steps)
        self._draw_heads(bottom)
        y: float = _FIRST_STEP
        shown = ""
        for step in self._diagram.steps:
            time = self._time(step)
            if time != shown:
                self._canvas.text(
                    self._columns.time, y + 26, time, "number small dim", anchor="end"
                )
            shown = time
            self._draw_step(step, y)
            y += self._height(step)
        self._canvas.reach(self._columns.verdicts + 240)
        end = self._draw_log(y + 14)
        self._canvas.width += _MARGIN
        return self._canvas.document(
            end, title=self._title, description=self._description(), style=stylesheet(self._theme)
        )

    def _draw_heads(self, bottom: float) -> None:
        canvas = self._canvas
        canvas.text(_MARGIN, 34, self._title, "title")
        counts = counts_text(self._diagram)
        canvas.text(_MARGIN, 54, counts, "dim")
        canvas.reach(_MARGIN + max(text_width(self._title, 16), text_width(counts)))
        columns = self._columns
        lines = [*self._diagram.producers, *self._diagram.brokers]
        for x, line in zip([*columns.producers, *columns.brokers], lines, strict=True):
            canvas.line(x, _HEAD_TOP + _HEAD_HEIGHT, x, bottom, "life")
            _draw_head(canvas, x, line)

    def _draw_step(self, step: Step, y: float) -> None:
        match step:
            case RoundTrip():
                self._draw_exchange(step, y)
            case Folded():
                self._draw_remark(self._middle(step), y, folded_text(step), "remark")
            case Remark():
                look = "bolt" if step.is_fault else "remark"
                self._draw_remark(self._columns.brokers[step.broker], y, step.text, look)

    def _draw_exchange(self, exchange: RoundTrip, y: float) -> None:
        columns = self._columns
        ends = columns.producers[exchange.producer], columns.brokers[exchange.broker]
        draw_request(self._canvas, exchange, self._diagram, ends, y)
        answer_y = y + 60
        if has_answer(exchange):
            self._canvas.box(ends[1] - 4, y + 34, 8, answer_y - y - 34, "busy", radius=2)
            draw_answer(self._canvas, exchange, ends, answer_y)
        draw_verdicts(self._canvas, exchange, columns.verdicts, y + 34)

    def _draw_remark(self, middle: float, y: float, text: str, look: str) -> None:
        width = text_width(text) + 24
        x = max(middle - width / 2, self._columns.time + 12)
        self._canvas.box(x, y + 8, width, 26, look, radius=6)
        classes = "refused" if look == "bolt" else ""
        self._canvas.text(x + width / 2, y + 25, text, classes, anchor="middle")

    def _draw_log(self, y: float) -> float:
        """Draws the stored batches by partition; returns the height of the whole picture."""
        if not self._diagram.stored:
            return y + 10
        self._canvas.line(_MARGIN, y, self._canvas.width, y, "rule")
        self._canvas.text(_MARGIN, y + 24, "Appended, by offset", "name")
        y += 38
        for place in self._diagram.partitions:
            self._draw_partition(place, y)
            y += _STORED_ROW
        return y + 6

    def _draw_partition(self, place: tuple[str, int], y: float) -> None:
        items = [
            (
                WindowEntry(one.letter, one.batch.base_sequence, one.batch.last_sequence),
                one.base_offset,
            )
            for one in self._diagram.stored
            if one.batch[:2] == place
        ]
        name = partition_text(*place)
        self._canvas.text(_MARGIN, y + 13, name, "number")
        x = _MARGIN + max(text_width(name, is_number=True) + 16, 80)
        rest = len(items) - _STORED_SHOWN_MAX
        if rest > 0:
            text = f"{rest} before"
            self._canvas.text(x, y + 13, text, "small dim")
            x += text_width(text, 11) + 12
        if not items:
            self._canvas.text(x, y + 13, "nothing", "small dim")
        draw_stored(self._canvas, x, y, items[-_STORED_SHOWN_MAX:])

    def _height(self, step: Step) -> float:
        return self._columns.exchange_height(step) if isinstance(step, RoundTrip) else _NOTE_HEIGHT

    def _middle(self, step: Folded) -> float:
        columns = self._columns
        return (columns.producers[step.producer] + columns.brokers[step.broker]) / 2

    def _time(self, step: Step) -> str:
        """The time since the first step."""
        passed = step.time_ms - self._diagram.steps[0].time_ms
        return f"+{passed} ms" if passed < 10_000 else f"+{passed / 1000:.1f} s"

    def _description(self) -> str:
        """The run in words, for screen readers."""
        faults = [
            fate_text(s) for s in self._diagram.steps if isinstance(s, RoundTrip) and s.faults
        ]
        stored = " ".join(one.letter for one in self._diagram.stored)
        sentences = [
            counts_text(self._diagram),
            *faults,
            f"appended, in order: {stored or 'nothing'}",
        ]
        return ". ".join(sentences) + "."


def _draw_head(canvas: Canvas, x: float, line: Lifeline) -> None:
    width = head_width(line)
    canvas.box(x - width / 2, _HEAD_TOP, width, _HEAD_HEIGHT, "head", radius=6)
    name_y = _HEAD_TOP + (17 if line.detail else 25)
    canvas.text(x, name_y, line.name, "name", anchor="middle")
    if line.detail:
        canvas.text(x, _HEAD_TOP + 32, line.detail, "small dim", anchor="middle")
