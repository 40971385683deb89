"""From recorded events to a diagram. Pure: the same events make the same diagram.

An event is one line of `/decisions?follow=true`: a decision or a fault, as `docs/admin.md` has it.
The recorder may add `{"event": "note", "time_ms": ..., "text": ...}`. Decisions and faults about
one request form one exchange: they share broker, connection and correlation id. If the correlation
id says nothing (0, on the native port), a fault belongs to the exchange that has its batches.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from echoless.diagram.letters import Letters
from echoless.diagram.lives import Connection, Event, connection_of, with_lives
from echoless.diagram.producer_lines import BETWEEN_BROKERS, ProducerLines, is_request
from echoless.diagram.steps import (
    AppendedBatch,
    BatchVerdict,
    Diagram,
    Fate,
    Fault,
    Lifeline,
    NumberedBatch,
    Remark,
    RoundTrip,
    Sent,
    Step,
    TransactionCall,
)
from echoless.diagram.transaction_wording import own_step_text, places_text
from echoless.diagram.wording import fault_text

_UNKNOWN_CORRELATION: Final = 0
_REQUEST_FATES: Final = {
    "drop_request": Fate.LOST,
    "blackhole": Fate.LOST,
    "close_before": Fate.BROKEN,
}
_RESPONSE_FATES: Final = {
    "drop_response": Fate.LOST,
    "close_after": Fate.BROKEN,
    "close_within": Fate.BROKEN,
    "crash": Fate.BROKEN,
}
_SILENCING: Final = {"drop_request", "drop_response", "blackhole"}
"""Answers keep their order: those after a lost one wait, unless the rule says otherwise."""
_NOT_DRAWN: Final = {"request", "recording"}
"""A request is drawn where its batches are decided about, or a fault hits it."""
_NEVER_JUDGED: Final = {"drop_request", "blackhole", "close_before", "error", "deny"}


def build_diagram(events: Iterable[Event]) -> Diagram:
    """The whole recording, one step after the other."""
    recorded = [event for event in events if event["event"] not in _NOT_DRAWN]
    brokers = sorted({event["broker_id"] for event in recorded if "broker_id" in event}) or [0]
    if len(brokers) > 1:
        recorded.sort(key=lambda event: event["time_ms"])
    return _Builder(list(with_lives(recorded)), brokers).build()


class _Builder:
    def __init__(self, events: list[Event], brokers: list[int]) -> None:
        self._events = events
        self._brokers = brokers
        self._lines = ProducerLines(events)
        self._letters = Letters()
        self._steps: list[Step] = []
        self._stored: list[AppendedBatch] = []
        self._latest: dict[tuple[Connection, int], RoundTrip] = {}
        """The latest exchange of each connection and correlation id."""
        self._silent: set[Connection] = set()
        """Connections on which no answer arrives any more."""

    def build(self) -> Diagram:
        for event in self._events:
            if not is_request(event):
                self._note(event)
            elif event["event"] == "decision":
                self._decide(event)
            elif event["event"] == "transaction":
                self._call(event)
            else:
                self._hit(event)
        return Diagram(
            producers=self._lines.lines,
            brokers=[
                Lifeline(f"broker {number}" if number else "broker", "") for number in self._brokers
            ],
            steps=self._steps,
            partitions=sorted({(one.batch.topic, one.batch.partition) for one in self._all_sent()}),
            stored=self._stored,
        )

    def _all_sent(self) -> Iterable[Sent]:
        return (one for step in self._steps if isinstance(step, RoundTrip) for one in step.sent)

    # --- one event each

    def _decide(self, event: Event) -> None:
        batch = _batch(event)
        exchange = self._latest.get(_key(event))
        if exchange is None or not _takes_decision(exchange, batch, event):
            exchange = self._begin(event, "produce")
        undecided = [
            s for s in exchange.sent if s.batch == batch and s.verdict is BatchVerdict.NOT_JUDGED
        ]
        sent = undecided[0] if undecided else self._send(exchange, batch)
        sent.verdict = BatchVerdict(event["decision"])
        sent.base_offset = event["base_offset"]
        sent.error, sent.reason = event["error"] or "", event["reason"]
        if event["window"] is not None:
            window = [self._letters.remembered(batch, tuple(item)) for item in event["window"]]
            sent.window = tuple(window)
        if sent.verdict is BatchVerdict.APPENDED:
            self._letters.store(batch)
            self._stored.append(AppendedBatch(sent.letter, batch, sent.base_offset))

    def _call(self, event: Event) -> None:
        """A client's request about a transaction; a fault may have made its exchange already."""
        exchange = self._latest.get(_key(event))
        if exchange is None or exchange.sent or exchange.call is not None:
            exchange = self._begin(event, event["api"])
        exchange.call = TransactionCall(
            event["step"],
            event["transactional_id"],
            places_text(event),
            event["producer_epoch"],
            event["error"] or "",
            event["reason"],
        )

    def _hit(self, event: Event) -> None:
        batches = [_batch(batch) for batch in event["batches"]]
        exchange = self._latest.get(_key(event))
        if exchange is None or not _takes_fault(exchange, batches):
            exchange = self._begin(event, event["api"])
            exchange.about = event.get("about", "")
            for batch in batches:
                self._send(exchange, batch)
        action = event["action"]
        exchange.faults.append(_fault(event))
        if action in _SILENCING and exchange.faults[-1].field("later") != "send":
            self._silent.add(connection_of(event))
        exchange.request = _REQUEST_FATES.get(action, exchange.request)
        exchange.response = _RESPONSE_FATES.get(action, exchange.response)
        if action == "crash":
            self._note(event)

    def _note(self, event: Event) -> None:
        is_fault = event["event"] == "fault"
        text = _faulted(event) if is_fault else _said(event)
        self._steps.append(
            Remark(
                time_ms=event.get("time_ms", self._steps[-1].time_ms if self._steps else 0),
                broker=self._broker(event),
                text=text,
                is_fault=is_fault,
            )
        )

    # --- exchanges

    def _begin(self, event: Event, api: str) -> RoundTrip:
        exchange = RoundTrip(
            time_ms=event["time_ms"],
            producer=self._lines.index(event),
            broker=self._broker(event),
            api=api,
            sent=[],
            faults=[],
        )
        if connection_of(event) in self._silent:
            exchange.response, exchange.is_behind_a_loss = Fate.LOST, True
        self._latest[_key(event)] = exchange
        self._steps.append(exchange)
        return exchange

    def _send(self, exchange: RoundTrip, batch: NumberedBatch) -> Sent:
        letter, attempt = self._letters.of(batch), self._letters.next_attempt(batch)
        sent = Sent(batch=batch, letter=letter, attempt=attempt)
        exchange.sent.append(sent)
        return sent

    def _broker(self, event: Event) -> int:
        return self._brokers.index(event.get("broker_id", self._brokers[0]))


def _takes_decision(exchange: RoundTrip, batch: NumberedBatch, event: Event) -> bool:
    """Whether the decision is about this exchange, and not about a later request."""
    actions = {fault.action for fault in exchange.faults}
    if actions & _NEVER_JUDGED:
        return False
    if any(one.batch == batch and one.verdict is BatchVerdict.NOT_JUDGED for one in exchange.sent):
        return True
    if event["correlation_id"] == _UNKNOWN_CORRELATION:
        return False
    place = batch.topic, batch.partition
    is_other = all((one.batch.topic, one.batch.partition) != place for one in exchange.sent)
    return is_other or "twice" in actions


def _takes_fault(exchange: RoundTrip, batches: list[NumberedBatch]) -> bool:
    known = {one.batch for one in exchange.sent}
    return all(batch in known for batch in batches)


def _fault(event: Event) -> Fault:
    return Fault(event["rule"], event["action"], event.get("detail", ""))


def _key(event: Event) -> tuple[Connection, int]:
    return connection_of(event), event["correlation_id"]


def _batch(event: Event) -> NumberedBatch:
    return NumberedBatch(*(event[field] for field in NumberedBatch._fields))


def _faulted(event: Event) -> str:
    """A fault that no client's request has met."""
    text, about = fault_text(_fault(event)), event.get("about")
    api = event["api"]
    if api not in BETWEEN_BROKERS:
        return text
    what = "marker" if api == "write_markers" else "question of a leader"
    return f"{what} {about}: {text}" if about else f"{what}: {text}"


def _said(event: Event) -> str:
    if event["event"] == "transaction":
        return own_step_text(event)
    if event["event"] == "lost":
        return f"{event['count']} events were not recorded: the reader was too slow"
    return str(event["text"])
