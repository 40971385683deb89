"""The decision about each batch of a request, beside the broker's line."""

from __future__ import annotations

from typing import Final

from echoless.diagram.canvas import Canvas, text_width
from echoless.diagram.pills import draw_badge, draw_window
from echoless.diagram.steps import BatchVerdict, RoundTrip, Sent
from echoless.diagram.transaction_wording import call_verdict_text
from echoless.diagram.wording import is_old_repeat, verdict_text

SHOWN_MAX: Final = 6
"""Batches of one request whose verdicts are shown."""
_LINE: Final = 18
_WINDOW: Final = 24
_SPACE: Final = 6


def draw_verdicts(canvas: Canvas, exchange: RoundTrip, x: float, y: float) -> None:
    """Draws them one below the other, from the middle of the first line at `y`."""
    if exchange.call is not None:
        kind = "refused" if exchange.call.error else "stored"
        text = call_verdict_text(exchange.call)
        canvas.dot(x, y, 4, kind)
        canvas.text(x + 12, y + 4, text, f"verdict {kind}")
        canvas.reach(x + 12 + text_width(text))
        return
    judged = _judged(exchange)
    for sent in judged[:SHOWN_MAX]:
        _draw_verdict(canvas, sent, x, y, is_named=len(exchange.sent) > 1)
        y += _height(sent)
    if len(judged) > SHOWN_MAX:
        canvas.text(x + 14, y + 4, f"and {len(judged) - SHOWN_MAX} more", "small dim")


def verdicts_height(exchange: RoundTrip) -> float:
    """Height of everything that `draw_verdicts` shows."""
    if exchange.call is not None:
        return _LINE
    judged = _judged(exchange)
    more = _LINE if len(judged) > SHOWN_MAX else 0
    return sum(_height(sent) for sent in judged[:SHOWN_MAX]) + more


def look(sent: Sent) -> str:
    """The class that colours a verdict."""
    if sent.verdict is BatchVerdict.APPENDED:
        return "stored"
    if sent.verdict is BatchVerdict.REJECTED and not is_old_repeat(sent):
        return "refused"
    return "repeat"


def _judged(exchange: RoundTrip) -> list[Sent]:
    return [one for one in exchange.sent if one.verdict is not BatchVerdict.NOT_JUDGED]


def _draw_verdict(canvas: Canvas, sent: Sent, x: float, y: float, *, is_named: bool) -> None:
    canvas.dot(x, y, 4, look(sent))
    text_x = x + 12
    if is_named:
        text_x = draw_badge(canvas, text_x, y - 9, sent.letter)
    text = verdict_text(sent)
    canvas.text(text_x, y + 4, text, f"verdict {look(sent)}")
    canvas.reach(text_x + text_width(text))
    y += _LINE
    if sent.verdict is BatchVerdict.REJECTED:
        canvas.text(x + 12, y + 4, sent.reason, "small dim")
        canvas.reach(x + 12 + text_width(sent.reason, 11))
        y += _LINE
    if sent.window is not None:
        draw_window(canvas, x + 12, y - 6, sent)


def _height(sent: Sent) -> float:
    reason = _LINE if sent.verdict is BatchVerdict.REJECTED else 0
    window = _WINDOW if sent.window is not None else 0
    return _LINE + reason + window + _SPACE
