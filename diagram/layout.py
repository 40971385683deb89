"""Layout: the columns of a picture, and the height of each exchange."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from echoless.diagram.arrows import request_label_width
from echoless.diagram.canvas import text_width
from echoless.diagram.steps import Diagram, Lifeline, RoundTrip
from echoless.diagram.verdicts import verdicts_height
from echoless.diagram.wording import answer_text, fate_text, has_answer

_TIME_WIDTH: Final = 84
_LINE_GAP: Final = 34
_REACH_MIN: Final = 250
"""Distance from the last producer to the first broker, at least."""
_VERDICT_GAP: Final = 26


@dataclass(slots=True, kw_only=True)
class Lanes:
    """Horizontal positions."""

    time: float
    """Right edge of the times."""
    producers: list[float]
    brokers: list[float]
    verdicts: float
    """Left edge of the verdicts."""

    def exchange_height(self, exchange: RoundTrip) -> float:
        arrows = 90 if has_answer(exchange) else 60
        if exchange.faults:
            arrows += 16
        return max(arrows, 34 + verdicts_height(exchange) + 14)


def arrange(diagram: Diagram) -> Lanes:
    """Columns wide enough for their names and for the labels between them."""
    producers, end = _stand(diagram.producers, _TIME_WIDTH + _LINE_GAP)
    last = producers[-1] if producers else end
    widest = max(
        (_label_width(s, diagram) for s in diagram.steps if isinstance(s, RoundTrip)), default=0
    )
    first_half = head_width(diagram.brokers[0]) / 2
    start = max(last + max(_REACH_MIN, widest + 56) - first_half, end + _LINE_GAP)
    brokers, _ = _stand(diagram.brokers, start)
    verdicts = brokers[-1] + _VERDICT_GAP
    return Lanes(time=_TIME_WIDTH, producers=producers, brokers=brokers, verdicts=verdicts)


def head_width(line: Lifeline) -> float:
    """Width of the box with a line's name."""
    return max(text_width(line.name, 13), text_width(line.detail, 11), 70) + 24


def _stand(lines: list[Lifeline], start: float) -> tuple[list[float], float]:
    """The middle of each line's head, side by side, and the right edge of the last one."""
    middles = []
    x = start
    for line in lines:
        width = head_width(line)
        middles.append(x + width / 2)
        x += width + _LINE_GAP
    return middles, x - _LINE_GAP if lines else start


def _label_width(exchange: RoundTrip, diagram: Diagram) -> float:
    """The widest of the texts above and below the arrows."""
    return max(
        request_label_width(exchange, diagram),
        text_width(answer_text(exchange), 11, is_number=True),
        text_width(fate_text(exchange), 11),
    )
