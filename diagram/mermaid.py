"""A diagram as Mermaid text, which GitHub and most documentation tools render themselves.

Text from outside (client ids, topics, rule names) is escaped: Mermaid gives a meaning to `#` and
`;` and to angle brackets, which its entity codes remove.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from echoless.diagram.steps import (
    AppendedBatch,
    BatchVerdict,
    Diagram,
    Fate,
    Folded,
    Lifeline,
    Remark,
    RoundTrip,
    Sent,
    Step,
)
from echoless.diagram.transaction_wording import call_verdict_text
from echoless.diagram.wording import (
    answer_text,
    fate_text,
    folded_text,
    has_answer,
    range_text,
    request_text,
    sent_text,
    verdict_text,
)

_INDENT: Final = "    "
_BREAK: Final = "<br/>"
_STORED_SHOWN_MAX: Final = 12
_ENTITIES: Final = {"#": "#35;", ";": "#59;", "<": "#lt;", ">": "#gt;", "\n": " ", "\r": " "}


def render(diagram: Diagram) -> str:
    """The text, ending with a newline; without the fence that Markdown puts around it."""
    lines = ["sequenceDiagram"]
    lines += [f"{_INDENT}participant {name}" for name in _participants(diagram)]
    for step in diagram.steps:
        lines += [_INDENT + line for line in _step(step, diagram)]
    last = len(diagram.brokers) - 1
    if diagram.stored:
        lines.append(f"{_INDENT}Note over B{last}: appended, by offset:{_BREAK}{_log(diagram)}")
    return "\n".join(lines) + "\n"


def _participants(diagram: Diagram) -> Iterator[str]:
    for prefix, found in (("P", diagram.producers), ("B", diagram.brokers)):
        for index, line in enumerate(found):
            yield f"{prefix}{index} as {_title(line)}"


def _title(line: Lifeline) -> str:
    return _BREAK.join(_safe(text) for text in line if text)


def _step(step: Step, diagram: Diagram) -> Iterator[str]:
    match step:
        case RoundTrip():
            yield from _exchange(step, diagram)
        case Folded():
            yield f"P{step.producer}->>B{step.broker}: ... {folded_text(step)} ..."
        case Remark():
            yield f"Note over B{step.broker}: {_safe(step.text)}"


def _exchange(exchange: RoundTrip, diagram: Diagram) -> Iterator[str]:
    producer, broker = f"P{exchange.producer}", f"B{exchange.broker}"
    fate = _safe(fate_text(exchange))
    request = ", ".join(_safe(sent_text(one, diagram)) for one in exchange.sent)
    request = request or _safe(request_text(exchange))
    if exchange.request is not Fate.ARRIVED:
        yield f"{producer}-x{broker}: {request}: {fate}"
        return
    yield f"{producer}->>{broker}: {request}"
    for one in exchange.sent:
        if one.verdict is not BatchVerdict.NOT_JUDGED:
            yield f"Note right of {broker}: {_verdict(one, is_named=len(exchange.sent) > 1)}"
    if exchange.call is not None:
        yield f"Note right of {broker}: {_safe(call_verdict_text(exchange.call))}"
    if has_answer(exchange):
        is_lost = exchange.response is not Fate.ARRIVED
        answer = ", ".join(text for text in (answer_text(exchange), fate) if text)
        yield f"{broker}--{'x' if is_lost else '>>'}{producer}: {answer or 'no answer'}"
    elif fate:
        yield f"Note right of {broker}: {fate}"


def _verdict(sent: Sent, *, is_named: bool) -> str:
    lines = [f"{sent.letter} {verdict_text(sent)}" if is_named else verdict_text(sent)]
    if sent.verdict is BatchVerdict.REJECTED:
        lines.append(sent.reason)
    if sent.window is not None:
        window = [
            f"{one.letter} {range_text(one.base_sequence, one.last_sequence)}".strip()
            for one in sent.window
        ]
        lines.append(f"window before: {', '.join(window) or 'empty'}")
    return _BREAK.join(_safe(line) for line in lines if line)


def _log(diagram: Diagram) -> str:
    """The batches that the recording saw appended, partition by partition."""
    lines = []
    for topic, partition in diagram.partitions:
        stored = [one for one in diagram.stored if one.batch[:2] == (topic, partition)]
        lines.append(_safe(f"{topic}-{partition}: {_letters(stored)}"))
    return _BREAK.join(lines)


def _letters(stored: list[AppendedBatch]) -> str:
    rest = len(stored) - _STORED_SHOWN_MAX
    before = [f"{rest} before"] if rest > 0 else []
    letters = [one.letter for one in stored[-_STORED_SHOWN_MAX:]]
    return " ".join([*before, *letters]) or "nothing appended"


def _safe(text: str) -> str:
    return "".join(_ENTITIES.get(character, character) for character in text)
