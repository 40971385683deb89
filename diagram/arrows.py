"""A request and its answer as slanted arrows, and the crosses where they are lost."""

from __future__ import annotations

from typing import Final

from echoless.diagram.canvas import Canvas, text_width
from echoless.diagram.pills import badge_width, draw_badge
from echoless.diagram.steps import Diagram, Fate, RoundTrip, Sent
from echoless.diagram.wording import (
    answer_text,
    attempt_text,
    epoch_text,
    fate_text,
    has_answer,
    is_success,
    place_text,
    range_text,
    request_text,
)

_LABELS_MAX: Final = 3
"""Batches of one request that are named on its arrow."""
_SLANT: Final = 12
_LOST_AT: Final = 0.62
"""The part of the way that a lost message is drawn."""
_CROSS: Final = 6
_LABEL_GAP: Final = 14

Ends = tuple[float, float]
"""The lines of the producer and of the broker."""


def draw_request(
    canvas: Canvas, exchange: RoundTrip, diagram: Diagram, ends: Ends, y: float
) -> None:
    """Draws it from the producer, at `y` + 22, down to the broker or to where it was lost."""
    _draw_request_label(canvas, exchange, diagram, sum(ends) / 2, y)
    if exchange.request is Fate.ARRIVED:
        _draw_arrow(canvas, ends, y + 22, "arrow", "tip")
        if exchange.response is Fate.ARRIVED:
            below = y + (90 if has_answer(exchange) else 50)
            canvas.text(
                sum(ends) / 2, below, fate_text(exchange), "small repeat over", anchor="middle"
            )
    else:
        _draw_lost(canvas, ends, y + 22, "arrow", fate_text(exchange))


def draw_answer(canvas: Canvas, exchange: RoundTrip, ends: Ends, y: float) -> None:
    """Draws it from the broker, at `y`, down to the producer or to where it was lost."""
    text = answer_text(exchange)
    classes = "number small over" if is_success(exchange) else "number small refused over"
    is_lost = exchange.response is not Fate.ARRIVED
    x, anchor = (ends[1] - 14, "end") if is_lost else (sum(ends) / 2, "middle")
    canvas.text(x, y - 3, text, classes, anchor=anchor)
    back = ends[1], ends[0]
    if not is_lost:
        _draw_arrow(canvas, back, y, "answer", "tip-answer")
    else:
        _draw_lost(canvas, back, y, "answer", fate_text(exchange))


def request_label_width(exchange: RoundTrip, diagram: Diagram) -> float:
    """Width of the text above the request's arrow."""
    if not exchange.sent:
        return text_width(request_text(exchange))
    widths = [_sent_width(one, diagram) for one in exchange.sent[:_LABELS_MAX]]
    rest = len(exchange.sent) - _LABELS_MAX
    if rest > 0:
        widths.append(text_width(_rest_text(rest), 11))
    return sum(widths) + _LABEL_GAP * (len(widths) - 1)


def _draw_request_label(
    canvas: Canvas, exchange: RoundTrip, diagram: Diagram, middle: float, y: float
) -> None:
    if not exchange.sent:
        canvas.text(middle, y + 14, request_text(exchange), "over", anchor="middle")
        return
    x = middle - request_label_width(exchange, diagram) / 2
    for sent in exchange.sent[:_LABELS_MAX]:
        start = x
        x = draw_badge(canvas, x, y + 1, sent.letter)
        for text, classes in _words(sent, diagram):
            canvas.text(x, y + 14, text, f"{classes} over")
            x += _word_width(text, classes)
        x = start + _sent_width(sent, diagram) + _LABEL_GAP
    rest = len(exchange.sent) - _LABELS_MAX
    if rest > 0:
        canvas.text(x, y + 14, _rest_text(rest), "small dim over")


def _rest_text(count: int) -> str:
    return f"and {count} more"


def _words(sent: Sent, diagram: Diagram) -> list[tuple[str, str]]:
    """The text about a batch on its arrow, each word with its classes."""
    words = [
        (range_text(sent.batch.base_sequence, sent.batch.last_sequence), "number"),
        (place_text(sent, diagram), "number small dim"),
        (epoch_text(sent), "small dim over"),
        (attempt_text(sent), "small repeat"),
    ]
    return [(text, classes) for text, classes in words if text]


def _sent_width(sent: Sent, diagram: Diagram) -> float:
    words = sum(_word_width(*word) for word in _words(sent, diagram))
    return badge_width(sent.letter) + words


def _word_width(text: str, classes: str) -> float:
    size = 11 if "small" in classes else 12
    return text_width(text, size, is_number="number" in classes) + 7


def _draw_arrow(canvas: Canvas, ends: Ends, y: float, line: str, tip: str) -> None:
    start, end = ends
    side = 1 if end > start else -1
    canvas.line(start, y, end - side * 6, y + _SLANT * 0.97, line)
    tip_y = y + _SLANT
    canvas.path(
        f"M{end - side * 2:.1f} {tip_y:.1f}l{-side * 9} -4.6l0 8.6z",
        tip,
    )


def _draw_lost(canvas: Canvas, ends: Ends, y: float, line: str, text: str) -> None:
    """Draws the line as far as it got, a cross, and faintly the rest of its way."""
    start, end = ends
    x, cross_y = start + (end - start) * _LOST_AT, y + _SLANT * _LOST_AT
    canvas.line(start, y, x, cross_y, line)
    canvas.line(x, cross_y, end, y + _SLANT, "vanished")
    left, right, top, bottom = x - _CROSS, x + _CROSS, cross_y - _CROSS, cross_y + _CROSS
    canvas.path(
        f"M{left:.1f} {top:.1f}L{right:.1f} {bottom:.1f}M{left:.1f} {bottom:.1f}L{right:.1f} {top:.1f}",
        "cross",
    )
    canvas.text(sum(ends) / 2, y + 30, text, "small refused over", anchor="middle")
