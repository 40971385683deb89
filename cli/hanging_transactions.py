"""The end of a transaction that hangs: it is open on a partition, and no coordinator is going to end it."""

from __future__ import annotations

from typing import Any, NamedTuple

from echoless.cli.cluster import ClusterConnections, check
from echoless.cli.errors import CommandError
from echoless.cli.open_transactions import (
    OPEN_STATES,
    described_transaction,
    listed_transactions,
)


class HangingPlace(NamedTuple):
    """The partition, and the offset of the transaction's first record there."""

    topic: str
    partition: int
    start_offset: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


def abort_hanging(cluster: ClusterConnections, place: HangingPlace) -> None:
    """Has the partition's leader write the marker of an abort, by the epochs that DescribeProducers shows.

    Raises `CommandError` if no transaction begins there, or if it is one that a coordinator has open.
    """
    leader = _leader_of(cluster, place)
    producer = _producer_at(cluster, leader, place)
    _check_unknown(cluster, producer.producer_id, place)
    marker = {
        "producer_id": producer.producer_id,
        "producer_epoch": producer.producer_epoch,
        "transaction_result": False,
        "topics": [{"name": place.topic, "partition_indexes": [place.partition]}],
        "coordinator_epoch": max(0, producer.coordinator_epoch),
    }
    answer = cluster.request_to(leader, "write_txn_markers", {"markers": [marker]})
    check(answer.markers[0].topics[0].partitions[0].error_code, str(place))


def _leader_of(cluster: ClusterConnections, place: HangingPlace) -> int:
    (topic,) = cluster.metadata([place.topic]).topics
    check(topic.error_code, place.topic)
    leaders = {one.partition_index: one.leader_id for one in topic.partitions}
    if place.partition not in leaders:
        raise CommandError(
            f"{place.topic} has {len(leaders)} partitions, none of number {place.partition}"
        )
    leader = int(leaders[place.partition])
    if leader not in cluster.broker_ids:
        raise CommandError(f"{place} has no leader now")
    return leader


def _producer_at(cluster: ClusterConnections, leader: int, place: HangingPlace) -> Any:
    fields = {"topics": [{"name": place.topic, "partition_indexes": [place.partition]}]}
    answer = cluster.request_to(leader, "describe_producers", fields)
    (row,) = answer.topics[0].partitions
    check(row.error_code, str(place), row.error_message)
    by_start = {int(one.current_txn_start_offset): one for one in row.active_producers}
    found = by_start.get(place.start_offset) if place.start_offset >= 0 else None
    if found is None:
        others = ", ".join(str(start) for start in sorted(by_start) if start >= 0)
        raise CommandError(
            f"{place}: no open transaction begins at offset {place.start_offset}"
            + (f"; there are some at {others}" if others else ", nor at another one")
        )
    return found


def _check_unknown(cluster: ClusterConnections, producer_id: int, place: HangingPlace) -> None:
    """Raises `CommandError` if a coordinator is going to end the transaction: an early marker would tear it."""
    wanted = {"topic": place.topic, "partition": place.partition}
    for one in listed_transactions(cluster, states=OPEN_STATES, producer_ids=[producer_id]):
        name = one["transactional_id"]
        if wanted in described_transaction(cluster, name)["partitions"]:
            raise CommandError(
                f"{place}: this transaction does not hang, it is {one['state']} at its coordinator: "
                f"echoless transactions abort {name}"
            )
