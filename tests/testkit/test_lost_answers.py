"""Clients of which nothing follows a lost request or answer, as the report of a failed test names them."""

from __future__ import annotations

from typing import Any

from echoless.testkit.lost_answers import describe_unanswered


def decision(correlation: int, client: str = "shop", connection: int = 1) -> dict[str, Any]:
    return {
        "event": "decision",
        "client_id": client,
        "connection_id": connection,
        "correlation_id": correlation,
    }


def fault(correlation: int, action: str = "drop_response", client: str = "shop") -> dict[str, Any]:
    fields = {"event": "fault", "rule": "lose-acks", "action": action}
    return decision(correlation, client) | fields


def test_client_that_sent_nothing_after_a_lost_answer_is_named() -> None:
    """The decision about the same request may be noted after the fault that hits its answer."""
    told = describe_unanswered([decision(1), fault(2), decision(2), decision(1, "other")])
    first, *remedy = told.splitlines()
    assert first == "lose-acks lost an answer to shop, and nothing of it follows."
    assert all("timeout" in line or "close_after" in line for line in remedy)


def test_client_that_went_on_is_not() -> None:
    """With the next request, or on another connection, where numbers begin anew."""
    assert describe_unanswered([fault(2), decision(2), decision(3)]) == ""
    assert describe_unanswered([fault(2), decision(2, connection=5)]) == ""


def test_last_lost_answer_counts() -> None:
    again = describe_unanswered([fault(2), decision(2), decision(1, connection=2), fault(7)])
    assert again.startswith("lose-acks lost an answer to shop,")


def test_lost_request_is_told_apart_and_other_faults_say_nothing() -> None:
    assert describe_unanswered([fault(2, "drop_request")]).startswith("lose-acks lost a request of")
    assert describe_unanswered([fault(2, "close_after")]) == ""


def test_lines_about_no_client_say_nothing() -> None:
    """A broker whose question to another one is lost has no timeout that a test could shorten."""
    assert describe_unanswered([fault(2, client="") | {"address": "127.0.0.1:5"}]) == ""
    assert describe_unanswered([{"event": "lost", "count": 3}]) == ""
    assert describe_unanswered([]) == ""
