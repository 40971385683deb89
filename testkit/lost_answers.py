"""Clients that may have been waiting for a lost answer when a test failed: a long request timeout is often the reason."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

_LOSING: Final = frozenset({"drop_request", "drop_response"})
_REMEDY: Final = (
    "If it was still waiting: a client does for its request timeout, 30 or 60 s by default. Shorten it in the test\n"
    "(librdkafka socket.timeout.ms, Java request.timeout.ms, aiokafka and kafka-python request_timeout_ms),\n"
    "or have the connection end instead (close_after, close_before)."
)


def describe_unanswered(events: Sequence[Mapping[str, Any]]) -> str:
    """The clients of which nothing follows a lost request or answer, and what to do; empty if there is none.

    `events`: of one broker, oldest first, as in `docs/admin.md`.
    """
    unanswered: dict[str, Mapping[str, Any]] = {}
    for event in events:
        client = event.get("client_id")
        if not client:  # a broker that asks another one
            continue
        lost = unanswered.get(client)
        if event.get("action") in _LOSING:
            unanswered[client] = event
        elif lost is not None and _request_of(event) != _request_of(lost):
            del unanswered[client]
    if not unanswered:
        return ""
    lines = [
        f"{lost['rule']} lost {'an answer to' if lost['action'] == 'drop_response' else 'a request of'} {client}, "
        "and nothing of it follows."
        for client, lost in unanswered.items()
    ]
    return "\n".join([*lines, _REMEDY])


def _request_of(event: Mapping[str, Any]) -> tuple[Any, Any]:
    """The request's connection and number: the decision about a batch can come after the fault that hits its answer."""
    return event["connection_id"], event["correlation_id"]
