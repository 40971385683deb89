"""The words for steps of transactions, the same in every rendering."""

from __future__ import annotations

from typing import Final

from echoless.diagram.lives import Event
from echoless.diagram.steps import TransactionCall
from echoless.protocol.errors import ErrorCode

_REQUESTS: Final = {
    "init_producer_id": "session",
    "add_partitions_to_txn": "add",
    "add_offsets_to_txn": "add offsets",
    "txn_offset_commit": "offsets",
    "end_txn": "end",
}


def places_text(event: Event) -> str:
    """`orders-0, orders-1 and 3 more`."""
    names = ", ".join(f"{one['topic']}-{one['partition']}" for one in event["partitions"])
    return f"{names} and {event['more']} more" if event["more"] else names


def call_text(api: str, call: TransactionCall) -> str:
    """The request, above its arrow."""
    what = call.step if call.step in ("commit", "abort") else _REQUESTS.get(api, api)
    places = f": {call.places}" if call.places else ""
    epoch = f" epoch {call.producer_epoch}" if what in ("commit", "abort", "end") else ""
    return f"{what} {call.transactional_id}{epoch}{places}"


def call_verdict_text(call: TransactionCall) -> str:
    """The coordinator's decision in one line."""
    match call.step:
        case "session":
            return f"session in epoch {call.producer_epoch}"
        case "begin":
            return "transaction begins"
        case "add":
            return "added"
        case "offsets":
            return f"positions {call.reason}"
        case "commit" | "abort":
            more = f", {call.reason}" if call.reason else ""
            return f"decided: {call.step}{more}"
        case _:
            return "refused"


def call_answer_text(call: TransactionCall) -> str:
    """The answer, without an error empty."""
    return f"{ErrorCode[call.error].value} {call.error}" if call.error else "done"


def own_step_text(event: Event) -> str:
    """A step that a broker has taken by itself, or for another one."""
    name, places = event["transactional_id"] or "a tool", places_text(event)
    match event["step"]:
        case "marker":
            at = f" at offset {event['base_offset']}" if event["base_offset"] >= 0 else ""
            return f"{name}: {event['result']} marker{at}, {places}"
        case "begin":
            return f"{name}: begins with {places}"
        case "add":
            return f"{name}: {places} added"
        case "complete":
            return f"{name}: {event['result']} is complete"
        case "time_out" | "fence":
            return f"{name}: aborted by its coordinator, {event['reason']}"
        case "refuse" if not event["error"]:
            return f"{name}: request without effect, {event['reason']}"
        case _:
            code = ErrorCode[event["error"]].value if event["error"] else ""
            return f"{name}: refused, {code} {event['error']}, {places}".rstrip(", ")
