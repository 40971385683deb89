"""A diagram as plain text, a line or two for each step: for reports of failed tests."""

from __future__ import annotations

from collections.abc import Iterator

from echoless.diagram.steps import BatchVerdict, Diagram, Fate, Folded, RoundTrip, Sent, Step
from echoless.diagram.transaction_wording import call_verdict_text
from echoless.diagram.wording import (
    answer_text,
    fate_text,
    folded_text,
    has_answer,
    request_text,
    sent_text,
    verdict_text,
)


def render(diagram: Diagram, steps_max: int) -> str:
    """The last `steps_max` steps, with the time since the first one."""
    if not diagram.steps:
        return "nothing was decided"
    steps = diagram.steps[-steps_max:]
    hidden = len(diagram.steps) - len(steps)
    lines = [f"... {hidden} steps before ..."] if hidden else []
    start = diagram.steps[0].time_ms
    for step in steps:
        for index, line in enumerate(_step(step, diagram)):
            time = f"{step.time_ms - start:+8d} ms" if index == 0 else " " * 11
            lines.append(f"{time}  {line}")
    return "\n".join(lines)


def _step(step: Step, diagram: Diagram) -> Iterator[str]:
    match step:
        case RoundTrip():
            yield from _exchange(step, diagram)
        case Folded():
            yield f"{diagram.producers[step.producer].name}: ... {folded_text(step)} ..."
        case _:
            yield f"== {step.text}"


def _exchange(exchange: RoundTrip, diagram: Diagram) -> Iterator[str]:
    producer = diagram.producers[exchange.producer].name
    broker = diagram.brokers[exchange.broker].name
    is_lost = exchange.request is not Fate.ARRIVED
    request = ", ".join(sent_text(one, diagram) for one in exchange.sent)
    request = request or request_text(exchange)
    fate = fate_text(exchange)
    sign = "--X" if is_lost else "-->"
    yield f"{producer} {sign} {broker}: {_with(request, fate if is_lost else '')}"
    for sent in exchange.sent:
        if sent.verdict is not BatchVerdict.NOT_JUDGED:
            yield f"    {sent.letter} {verdict_text(sent)}{_details(sent)}"
    if exchange.call is not None:
        yield f"    {call_verdict_text(exchange.call)} {exchange.call.error}".rstrip()
    if exchange.response is not Fate.ARRIVED and has_answer(exchange):
        yield f"{producer} X-- {broker}: {_with(answer_text(exchange), fate)}"
    elif fate and not is_lost:
        yield f"    {fate}"


def _with(text: str, fate: str) -> str:
    return " ".join(part for part in (text, f"[{fate}]" if fate else "") if part)


def _details(sent: Sent) -> str:
    """The reason and the window, unless it was simply appended."""
    if sent.verdict is BatchVerdict.APPENDED:
        return ""
    reason = f"; {sent.reason}" if sent.verdict is BatchVerdict.REJECTED else ""
    window = [f"{one.base_sequence}-{one.last_sequence}" for one in sent.window or ()]
    return f"{reason}; window [{' '.join(window)}]"
