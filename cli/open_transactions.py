"""Transactions as their coordinators know them, and the end of an open one."""

from __future__ import annotations

import time
from collections.abc import Collection
from enum import StrEnum
from typing import Any, Final

from echoless.cli.cluster import ClusterConnections, check
from echoless.cli.errors import CommandError

_TRANSACTION_KEY: Final = 1
"""FindCoordinator: the key is a transactional id."""
ABORT_TIMEOUT_S: Final = 30.0
"""The time for an abort to reach all partitions, before the command gives up waiting."""
NO_TIMEOUT_MS: Final = 2**31 - 1
"""The timeout of a session that commits in two phases: its transactions have none."""
_FENCING_TIMEOUT_MS: Final = 60_000
"""The timeout of the session that ends such a transaction; nothing is sent in it."""
_PAUSE_S: Final = 0.05
_AGAIN_S: Final = 1.0
"""The time after which a transaction that is still open is aborted again: the record of the abort was not stored."""

Document = dict[str, Any]


class TransactionStateName(StrEnum):
    """A state in which an id may be, as ListTransactions names it."""

    EMPTY = "Empty"
    ONGOING = "Ongoing"
    PREPARE_COMMIT = "PrepareCommit"
    PREPARE_ABORT = "PrepareAbort"
    COMPLETE_COMMIT = "CompleteCommit"
    COMPLETE_ABORT = "CompleteAbort"


OPEN_STATES: Final = (
    TransactionStateName.ONGOING,
    TransactionStateName.PREPARE_COMMIT,
    TransactionStateName.PREPARE_ABORT,
)
"""The states in which readers of committed records wait for a transaction."""


def listed_transactions(
    cluster: ClusterConnections,
    *,
    states: Collection[str] = (),
    producer_ids: Collection[int] = (),
    longer_than_ms: int = -1,
) -> list[Document]:
    """The ids that the brokers coordinate, by name. Raises `CommandError` if one of them cannot say."""
    cluster.metadata([])
    fields = {
        "state_filters": list(states),
        "producer_id_filters": list(producer_ids),
        "duration_filter": longer_than_ms,
    }
    found = []
    for broker_id in cluster.broker_ids:
        answer = cluster.request_to(broker_id, "list_transactions", fields)
        check(answer.error_code, f"broker {broker_id}")
        found += [
            {
                "transactional_id": one.transactional_id,
                "state": one.transaction_state,
                "producer_id": one.producer_id,
                "coordinator": broker_id,
            }
            for one in answer.transaction_states
        ]
    return sorted(found, key=lambda one: str(one["transactional_id"]))


def described_transaction(cluster: ClusterConnections, name: str) -> Document:
    """The id with the partitions of its transaction: those without a marker, once its end is decided.

    Raises `CommandError` if there is none.
    """
    cluster.metadata([])
    return _described(cluster, _coordinator_of(cluster, name), name)


def _coordinator_of(cluster: ClusterConnections, name: str) -> int:
    fields = {"key_type": _TRANSACTION_KEY, "coordinator_keys": [name]}
    (found,) = cluster.request("find_coordinator", fields).coordinators
    check(found.error_code, name, found.error_message)
    return int(found.node_id)


def _described(cluster: ClusterConnections, coordinator: int, name: str) -> Document:
    fields = {"transactional_ids": [name]}
    answer = cluster.request_to(coordinator, "describe_transactions", fields)
    (found,) = answer.transaction_states
    check(found.error_code, name)
    start_ms = int(found.transaction_start_time)
    return {
        "transactional_id": found.transactional_id,
        "state": found.transaction_state,
        "coordinator": coordinator,
        "producer_id": found.producer_id,
        "producer_epoch": found.producer_epoch,
        "timeout_ms": round(found.transaction_timeout.total_seconds() * 1000),
        "start_ms": None if start_ms < 0 else start_ms,
        "partitions": [
            {"topic": topic.topic, "partition": index}
            for topic in found.topics
            for index in topic.partitions
        ],
    }


def abort_transaction(cluster: ClusterConnections, name: str) -> None:
    """Fences the id's producer and aborts its open transaction; returns once every partition has the marker.

    Raises `CommandError` if there is no open transaction, if its producer ends it first, or if partitions are late.
    """
    first = described_transaction(cluster, name)
    if first["state"] not in OPEN_STATES:
        raise CommandError(f"{name}: has no open transaction, it is {first['state']}")
    now, until, again = first, time.monotonic() + ABORT_TIMEOUT_S, 0.0
    while _is_same(first, now) and now["state"] in OPEN_STATES:
        if now["state"] == TransactionStateName.PREPARE_COMMIT:
            raise CommandError(f"{name}: is being committed, which cannot be changed")
        if time.monotonic() > until:
            raise CommandError(f"{name}: {now['state']} after {ABORT_TIMEOUT_S:g} s; {_late(now)}")
        if now["state"] == TransactionStateName.ONGOING and time.monotonic() > again:
            has_begun = _fence(cluster, now)
            if not has_begun and not again:
                raise CommandError(f"{name}: ended by itself; its producer is fenced now")
            again = time.monotonic() + _AGAIN_S
        time.sleep(_PAUSE_S)
        now = _described(cluster, now["coordinator"], name)
    if _is_same(first, now) and now["state"] == TransactionStateName.COMPLETE_COMMIT:
        raise CommandError(f"{name}: was committed before it could be aborted")


def _is_same(one: Document, other: Document) -> bool:
    return bool(one["start_ms"] == other["start_ms"])


def _late(described: Document) -> str:
    places = [f"{one['topic']}-{one['partition']}" for one in described["partitions"]]
    return f"waiting for {', '.join(places)}"


def _fence(cluster: ClusterConnections, described: Document) -> bool:
    """Begins a new session of the id, whose timeout stays; returns whether its coordinator aborts something first."""
    name = described["transactional_id"]
    timeout_ms = described["timeout_ms"]
    if timeout_ms == NO_TIMEOUT_MS:
        timeout_ms = _FENCING_TIMEOUT_MS
    fields = {"transactional_id": name, "transaction_timeout": timeout_ms}
    answer = cluster.request_to(described["coordinator"], "init_producer_id", fields)
    if answer.error_code.name == "concurrent_transactions":
        return True
    check(answer.error_code, name)
    return False
