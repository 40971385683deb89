"""The words of a diagram, the same in every rendering."""

from __future__ import annotations

from typing import Final

from echoless.diagram.steps import (
    BatchVerdict,
    Diagram,
    Fate,
    Fault,
    Folded,
    RoundTrip,
    Sent,
    Step,
)
from echoless.diagram.transaction_wording import call_answer_text, call_text
from echoless.protocol.errors import ErrorCode

_ACTIONS: Final = {
    "drop_request": "request lost",
    "drop_response": "answer lost",
    "delay_request": "request held back",
    "delay_response": "answer held back",
    "error": "answered with an error, not processed",
    "error_after": "processed, answered with an error",
    "deny": "denied",
    "expire_login": "session ended",
    "close_before": "connection closed before processing",
    "close_after": "connection closed instead of an answer",
    "close_within": "connection closed within the answer",
    "trickle": "answer sent in small pieces",
    "swap": "overtaken by the next request",
    "twice": "processed twice",
    "hold_request": "request held until it is released",
    "hold_response": "answer held until it is released",
    "blackhole": "lost with all of its client",
    "freeze": "frozen",
    "cut_replica_link": "replica link cut",
    "expire_session": "coordination session expired",
    "fail_write": "write failed",
    "slow_write": "write slowed down",
    "fail_fsync": "fsync failed",
    "slow_fsync": "fsync slowed down",
    "crash": "broker killed",
}


_NAME_MAX: Final = 40
_NAME_END: Final = 14
_ERRORS: Final = {"error", "error_after", "deny"}


def action_text(action: str) -> str:
    """The effect of a fault's action."""
    return _ACTIONS.get(action, action.replace("_", " "))


def fault_text(fault: Fault) -> str:
    """The effect, its details, and the rule: `answer held back 100 ms (slow)`."""
    how = {"ms": f" {fault.field('ms')} ms", "point": f" {fault.field('point').replace('_', ' ')}"}
    details = [text for name, text in how.items() if fault.field(name)]
    return f"{action_text(fault.action)}{''.join(details)} ({fault.rule})"


def range_text(base_sequence: int, last_sequence: int) -> str:
    """`114-120`, or `114` for one record."""
    if base_sequence < 0:
        return "without a sequence"
    if base_sequence == last_sequence:
        return str(base_sequence)
    return f"{base_sequence}-{last_sequence}"


def attempt_text(sent: Sent) -> str:
    """Empty for the first attempt."""
    return {1: "", 2: "again"}.get(sent.attempt, f"attempt {sent.attempt}")


def epoch_text(sent: Sent) -> str:
    """Empty for epoch 0, where every producer begins."""
    return f"epoch {sent.batch.producer_epoch}" if sent.batch.producer_epoch > 0 else ""


def error_text(name: str) -> str:
    """`45 OUT_OF_ORDER_SEQUENCE_NUMBER`."""
    return f"{ErrorCode[name].value} {name}" if name in ErrorCode.__members__ else name


def is_old_repeat(sent: Sent) -> bool:
    """Whether it was refused only as an old repeat, which is success to every client."""
    return sent.error == ErrorCode.DUPLICATE_SEQUENCE_NUMBER.name


def verdict_text(sent: Sent) -> str:
    """The decision in one line."""
    if is_old_repeat(sent):
        return f"stored before, older than the window: {error_text(sent.error)}"
    match sent.verdict:
        case BatchVerdict.APPENDED:
            return f"appended at offset {sent.base_offset}"
        case BatchVerdict.DUPLICATE:
            return f"duplicate, stored before at offset {sent.base_offset}"
        case BatchVerdict.DIVERGENT:
            return f"duplicate with other bytes, stored before at offset {sent.base_offset}"
        case BatchVerdict.REJECTED:
            return f"refused: {error_text(sent.error)}"
        case BatchVerdict.NOT_JUDGED:
            return "never judged"


def answer_text(exchange: RoundTrip) -> str:
    """The broker's answer, sent or not."""
    actions = {fault.action for fault in exchange.faults}
    if actions & _ERRORS:
        codes = [fault.field("code") for fault in exchange.faults if fault.action in _ERRORS]
        return error_text(codes[0]) if codes[0] else _denial_text(exchange)
    if len(exchange.sent) > 1:
        refused = sum(one.verdict is BatchVerdict.REJECTED for one in exchange.sent)
        return f"{refused} of {len(exchange.sent)} refused" if refused else "all stored"
    if exchange.call is not None:
        return call_answer_text(exchange.call)
    if not exchange.sent or exchange.sent[0].verdict is BatchVerdict.NOT_JUDGED:
        return ""
    sent = exchange.sent[0]
    return error_text(sent.error) if sent.error else f"offset {sent.base_offset}"


def _denial_text(exchange: RoundTrip) -> str:
    if exchange.api == "produce":
        return error_text(ErrorCode.TOPIC_AUTHORIZATION_FAILED.name)
    return "not authorized"


def is_success(exchange: RoundTrip) -> bool:
    """Whether the answer says that everything is stored."""
    actions = {fault.action for fault in exchange.faults}
    refused = any(one.error and not is_old_repeat(one) for one in exchange.sent)
    refused = refused or (exchange.call is not None and bool(exchange.call.error))
    return not refused and not actions & _ERRORS


def fate_text(exchange: RoundTrip) -> str:
    """The fate of the request or the answer, with the rules that caused it.

    A crash affects the broker: it has its own note.
    """
    fates = [fault_text(fault) for fault in exchange.faults if fault.action != "crash"]
    if exchange.is_behind_a_loss and not fates:
        fates.append("waits behind a lost answer")
    return ", ".join(fates)


def has_answer(exchange: RoundTrip) -> bool:
    """Whether the broker began to answer."""
    return exchange.request is Fate.ARRIVED and (
        bool(answer_text(exchange)) or exchange.response is not Fate.ARRIVED
    )


def request_text(exchange: RoundTrip) -> str:
    """A request without batches, above its arrow."""
    if exchange.call is not None:
        return call_text(exchange.api, exchange.call)
    return f"{exchange.api} {exchange.about}".rstrip()


def place_text(sent: Sent, diagram: Diagram) -> str:
    """The batch's partition, if the diagram has more than one."""
    if len(diagram.partitions) == 1:
        return ""
    return partition_text(sent.batch.topic, sent.batch.partition)


def partition_text(topic: str, partition: int) -> str:
    """`orders-0`."""
    return f"{name_text(topic)}-{partition}"


def name_text(name: str) -> str:
    """A name that clients chose; of a very long one, both ends, so that it does not stretch the picture."""
    if len(name) <= _NAME_MAX:
        return name
    return f"{name[: _NAME_MAX - _NAME_END - 1]}\N{HORIZONTAL ELLIPSIS}{name[-_NAME_END:]}"


def sent_text(sent: Sent, diagram: Diagram) -> str:
    """`A 114-120 orders-0 epoch 1 again`: a batch in one line."""
    numbers = range_text(sent.batch.base_sequence, sent.batch.last_sequence)
    place, epoch = place_text(sent, diagram), epoch_text(sent)
    words = (sent.letter, numbers, place, epoch, attempt_text(sent))
    return " ".join(word for word in words if word)


def folded_text(folded: Folded) -> str:
    """The contents of a folded step."""
    what = f"{folded.batches} batches appended"
    if folded.base_sequence is None or folded.last_sequence is None:
        return what
    return f"{what}, {range_text(folded.base_sequence, folded.last_sequence)}"


def counts_text(diagram: Diagram) -> str:
    """The run in one line: where, how many requests, how many faults."""
    places = ", ".join(partition_text(*one) for one in diagram.partitions[:4])
    rest = len(diagram.partitions) - 4
    requests = sum(_requests(step) for step in diagram.steps)
    faults = sum(len(step.faults) for step in diagram.steps if isinstance(step, RoundTrip))
    parts = [
        f"{places} and {rest} more" if rest > 0 else places,
        _counted(requests, "request"),
        _counted(faults, "fault") if faults else "no faults",
    ]
    return " \N{MIDDLE DOT} ".join(part for part in parts if part)


def _requests(step: Step) -> int:
    if isinstance(step, Folded):
        return step.exchanges
    return int(isinstance(step, RoundTrip))


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
