"""The producer line of the diagram to which a request belongs.

A client is identified by its name, its principal and the producer id that it uses: so a client that reconnects
after a lost acknowledgement stays on its line, and one that restarts with a new id gets another.
Two live clients with the same name and id (a zombie and its successor) are told apart by their
connections, which take turns: first one, then the other, then the first again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from echoless.diagram.lives import Connection, Event, connection_of
from echoless.diagram.steps import Lifeline
from echoless.diagram.wording import name_text

_Identity = tuple[str, int, str]
"""Client id (or address), producer id and principal; -1 for a request without a producer id."""

NO_PRODUCER: Final = -1
BETWEEN_BROKERS: Final = frozenset({"write_markers", "add_or_verify", "find_transactions"})
"""Messages about transactions that no client sends."""
_ANONYMOUS: Final = "User:ANONYMOUS"
"""The principal of a client that has not authenticated, which is not shown."""


class ProducerLines:
    """The lines of one recording, in the order of their first request."""

    def __init__(self, events: Sequence[Event]) -> None:
        requests = [event for event in events if is_request(event)]
        self._by_connection = _identities(requests)
        self._taking_turns = _taking_turns(requests)
        self._indexes: dict[tuple[_Identity, Connection | None], int] = {}
        self.lines: list[Lifeline] = []

    def index(self, event: Event) -> int:
        """The line of the request to which the event belongs."""
        identity = self._identity(event)
        connection = connection_of(event) if identity in self._taking_turns else None
        key = identity, connection
        if key not in self._indexes:
            self._indexes[key] = len(self.lines)
            self.lines.append(_line(identity, connection))
        return self._indexes[key]

    def _identity(self, event: Event) -> _Identity:
        """The identity; for a request without a batch, the one shown by others on its connection."""
        identity = _identity(event)
        if identity[1] == NO_PRODUCER:
            return self._by_connection.get(connection_of(event), identity)
        return identity


def is_request(event: Event) -> bool:
    """Whether the event is about a client's request: a decision, a step of a transaction, or a fault that hit one."""
    match event["event"]:
        case "decision":
            return True
        case "fault":
            return bool(event["api"]) and event["api"] not in BETWEEN_BROKERS
        case "transaction":
            return bool(event["connection_id"])
        case _:
            return False


def _identities(requests: Sequence[Event]) -> dict[Connection, _Identity]:
    found: dict[Connection, _Identity] = {}
    for event in requests:
        identity = _identity(event)
        if identity[1] != NO_PRODUCER:
            found.setdefault(connection_of(event), identity)
    return found


def _taking_turns(requests: Sequence[Event]) -> set[_Identity]:
    """Identities that returned to a connection after using another one of that broker."""
    current: dict[tuple[_Identity, int], Connection] = {}
    left: set[tuple[_Identity, Connection]] = set()
    found = set()
    for event in requests:
        if event["event"] == "transaction":
            continue  # a client has a connection of its own to a coordinator
        identity, connection = _identity(event), connection_of(event)
        if (identity, connection) in left:
            found.add(identity)
        key = identity, connection[0]
        before = current.get(key, connection)
        if before != connection:
            left.add((identity, before))
        current[key] = connection
    return found


def _identity(event: Event) -> _Identity:
    producer_id = event.get("producer_id")
    if producer_id is None:
        batches = event.get("batches") or [{"producer_id": NO_PRODUCER}]
        producer_id = batches[0]["producer_id"]
    name = event.get("client_id") or event.get("address") or "client"
    return name, producer_id, event.get("principal") or _ANONYMOUS


def _line(identity: _Identity, connection: Connection | None) -> Lifeline:
    name, producer_id, principal = identity
    details = [] if producer_id == NO_PRODUCER else [f"producer id {producer_id}"]
    if principal != _ANONYMOUS:
        details.append(name_text(principal))
    if connection is not None:
        details.append(f"connection {connection[-1]}")
    return Lifeline(name_text(name), ", ".join(details))
