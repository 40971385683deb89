"""The judgement of a scenario, on accounts and logs made up for it."""

from __future__ import annotations

from echoless.testkit.clients.client import Deliveries, DeliveryReport, RecordKey
from echoless.testkit.scenarios.verdict import Outcome, judge


def _deliveries(*numbers: int, failed: tuple[int, ...] = ()) -> Deliveries:
    """Everything acknowledged, but for what failed."""
    places = [RecordKey("t", 0, number) for number in numbers]
    acknowledged = [
        DeliveryReport(place, index)
        for index, place in enumerate(places)
        if place.number not in failed
    ]
    return Deliveries(places, acknowledged, [(RecordKey("t", 0, one), "NO") for one in failed])


def _outcome(deliveries: Deliveries, *stored: int) -> Outcome:
    return judge(deliveries, {("t", 0): stored}).outcome


def test_once_in_order_is_what_was_sent() -> None:
    """Nothing missing, nothing twice, nothing after a greater number."""
    assert _outcome(_deliveries(1, 2, 3), 1, 2, 3) is Outcome.ONCE


def test_an_acknowledged_record_that_is_missing_is_lost() -> None:
    """Worse than everything else that is wrong with the log."""
    assert _outcome(_deliveries(1, 2, 3), 3, 1, 1) is Outcome.LOST


def test_a_record_behind_a_greater_one_is_out_of_order() -> None:
    """Repeats are not: they count as duplicates."""
    assert _outcome(_deliveries(1, 2, 3), 1, 3, 2) is Outcome.OUT_OF_ORDER
    assert _outcome(_deliveries(1, 2, 3), 1, 2, 3, 1, 2, 3) is Outcome.TWICE


def test_a_record_in_two_partitions_is_there_twice() -> None:
    """The application sees two of them."""
    stored = {("t", 0): [1], ("t", 1): [1]}
    assert judge(_deliveries(1), stored).outcome is Outcome.TWICE


def test_what_failed_and_is_not_stored_was_refused() -> None:
    """The client knows that it is not there."""
    assert _outcome(_deliveries(1, 2, failed=(2,)), 1) is Outcome.REFUSED
