"""Writes a recording as a broker would have sent it: `recording.append(A); recording.lose(B)`."""

from __future__ import annotations

from typing import Any

A, B, C, D, E = (114, 120), (121, 124), (125, 132), (133, 142), (143, 150)
"""The batches of the protocol's flows, by their sequences."""

Sequences = tuple[int, int]


class Recording:
    """Events in the order in which they are written here, a millisecond apart."""

    def __init__(self, client_id: str | None = "app", producer_id: int = 4000) -> None:
        self.events: list[dict[str, Any]] = []
        self._client: dict[str, Any] = {
            "client_id": client_id,
            "address": "127.0.0.1:5000",
            "connection_id": 1,
        }
        self._batch = {
            "topic": "orders", "partition": 0, "producer_id": producer_id, "producer_epoch": 0
        }  # fmt: skip
        self._correlation_id = 0

    def append(
        self, sequences: Sequences, window: list[Sequences] | None = None, **more: Any
    ) -> None:
        """The broker has stored the batch."""
        fields = {"base_offset": sequences[0], "window": window, **more}
        self._decide(sequences, "append", fields)

    def repeat(self, sequences: Sequences, window: list[Sequences], **more: Any) -> None:
        """The broker has found the batch in its window."""
        fields = {"base_offset": sequences[0], "reason": "stored before", "window": window, **more}
        self._decide(sequences, "duplicate", fields)

    def refuse(
        self, sequences: Sequences, error: str = "OUT_OF_ORDER_SEQUENCE_NUMBER", **more: Any
    ) -> None:
        """The broker has refused the batch."""
        fields = {"error": error, "reason": "it does not fit", "window": [], **more}
        self._decide(sequences, "reject", fields)

    def hit(self, action: str, *batches: Sequences, is_new: bool = True, **more: Any) -> None:
        """A fault has hit a new request with these batches, or the latest one."""
        more.setdefault("correlation_id", self._next() if is_new else self._correlation_id)
        sent = [
            {**self._batch, "base_sequence": first, "last_sequence": last}
            for first, last in batches
        ]
        fields = {"rule": "rule-1", "action": action, "api": "produce", "batches": sent}
        self._tell("fault", {**fields, **more})

    def step(self, step: str, **more: Any) -> None:
        """A step of the transaction of `t1`, by a client's request unless `connection_id` is 0."""
        more.setdefault("correlation_id", self._next())
        identity = {key: self._batch[key] for key in ("producer_id", "producer_epoch")}
        result = step if step in ("commit", "abort") else ""
        nothing = {"partitions": [], "more": 0, "result": result, "base_offset": -1, "error": None}
        fields = {"step": step, "transactional_id": "t1", **identity, **nothing, "reason": ""}
        self._tell("transaction", {**fields, **more})

    def note(self, text: str) -> None:
        """Adds a note of the recorder."""
        self.events.append({"event": "note", "time_ms": self._time_ms(), "text": text})

    def _decide(self, sequences: Sequences, decision: str, fields: dict[str, Any]) -> None:
        first, last = sequences
        if "correlation_id" not in fields:
            fields = {**fields, "correlation_id": self._next()}
        numbers = {**self._batch, "base_sequence": first, "last_sequence": last}
        nothing = {"base_offset": -1, "error": None, "reason": ""}
        self._tell("decision", {**numbers, "decision": decision, **nothing, **fields})

    def _tell(self, event: str, fields: dict[str, Any]) -> None:
        head = {"event": event, "broker_id": 1, "number": len(self.events) + 1}
        self.events.append({**head, "time_ms": self._time_ms(), **self._client, **fields})

    def _next(self) -> int:
        self._correlation_id += 1
        return self._correlation_id

    def _time_ms(self) -> int:
        return 1_795_219_200_000 + len(self.events)
