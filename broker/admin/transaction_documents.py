"""Transactional ids as JSON: those that this broker coordinates, and what one of them has open."""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Iterator
from http import HTTPStatus
from typing import Any, Final

from echoless.broker.admin.refusal import RefusalError
from echoless.broker.admin.view import BrokerView
from echoless.broker.handlers.transaction_rows import STATE_NAMES
from echoless.broker.network.turns import work_in_turns
from echoless.protocol.errors import ErrorCode
from echoless.protocol.state_records.transaction_records import (
    TransactionPartition,
    TransactionStatus,
    TransactionValue,
)

PARTITIONS_MAX: Final = 10_000
"""Partitions that are shown of one transaction."""


class ListedTransactions:
    """The ids that come first: those with an open transaction, the oldest before the others; then the rest."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._open: list[tuple[int, str, TransactionValue]] = []
        self._others: list[tuple[str, TransactionValue]] = []
        self.count = 0

    def add_all(self, broker: BrokerView, is_shown: Callable[[str], bool]) -> Iterator[None]:
        """Looks at one id a step."""
        for name, value in broker.transactions.all():
            if is_shown(name):
                self._add(name, value)
            yield

    def _add(self, name: str, value: TransactionValue) -> None:
        self.count += 1
        if value.status.is_prepared or value.status is TransactionStatus.ONGOING:
            insort(self._open, (value.start_ms, name, value), key=lambda one: one[:2])
            del self._open[self._limit :]
        elif len(self._others) < self._limit:
            self._others.append((name, value))

    def rows(self) -> list[dict[str, Any]]:
        """At most so many rows as the limit says."""
        first = [_row(name, value) for _, name, value in self._open]
        others = self._others[: self._limit - len(first)]
        return [*first, *(_row(name, value) for name, value in others)]


def _row(name: str, value: TransactionValue) -> dict[str, Any]:
    return {
        "transactional_id": name,
        "state": STATE_NAMES[value.status],
        "producer_id": value.producer_id,
        "producer_epoch": value.producer_epoch,
        "timeout_ms": value.timeout_ms,
        "start_ms": None if value.start_ms < 0 else value.start_ms,
        "partitions": len(value.partitions),
    }


async def transaction_document(
    broker: BrokerView, name: str, is_shown: Callable[[str], bool]
) -> dict[str, Any]:
    """The id and the partitions of its transaction, without the topics that the caller may not see.

    `is_complete` is false if there are more partitions than are shown. Raises `RefusalError`.
    """
    state = broker.transactions.look_at(name)
    if isinstance(state, ErrorCode):
        raise refused_id(name, state)
    value = state.value
    assert value is not None, "only known ids have a state"
    rows: list[dict[str, Any]] = []
    places = sorted(value.partitions)

    def add_rows() -> Iterator[None]:
        for place in places[:PARTITIONS_MAX]:
            if is_shown(place.topic):
                has_marker = value.status.is_prepared and place not in state.unmarked
                rows.append(_partition(broker, value, place, has_marker=has_marker))
            yield

    await work_in_turns(add_rows())
    is_complete = len(places) <= PARTITIONS_MAX
    return {**_row(name, value), "partitions": rows, "is_complete": is_complete}


def _partition(
    broker: BrokerView, value: TransactionValue, place: TransactionPartition, *, has_marker: bool
) -> dict[str, Any]:
    partition = broker.partitions.get((place.topic, place.partition))
    row = {"topic": place.topic, "partition": place.partition, "has_marker": has_marker}
    if partition is None:
        return {**row, "first_offset": None, "last_stable_offset": None}
    first = partition.log.producers.open_transaction(value.producer_id)
    return {**row, "first_offset": first, "last_stable_offset": partition.last_stable_offset}


def refused_id(name: str, code: ErrorCode) -> RefusalError:
    """The refusal of a request about an id that this broker cannot answer for."""
    if code is ErrorCode.NOT_COORDINATOR:
        text = f"this broker coordinates no transactional id {name!r}"
        return RefusalError(HTTPStatus.NOT_FOUND, text)
    if code is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
        return RefusalError(HTTPStatus.NOT_FOUND, f"there is no transactional id {name!r}")
    return RefusalError(HTTPStatus.SERVICE_UNAVAILABLE, f"transactional id {name!r}: {code.name}")
