"""A transaction of raw requests, of any version of each API, on a broker that is made to serve transactions."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from typing import Any

from echoless.protocol.errors import ErrorCode
from tests.broker.handlers.one_group import call
from tests.support.raw_client import RawConnection, nested

ID = "orders"
TIMEOUT = datetime.timedelta(minutes=1)
TWO_PHASES_FROM = 6
"""The version of InitProducerId with KIP-939."""
Identity = tuple[int, int]


async def find(kafka: RawConnection, version: int = 4, name: str = ID) -> Any:
    """The row of FindCoordinator for a transactional id."""
    if version < 4:
        return await kafka.call("find_coordinator", version, key=name, key_type=1)
    answer = await kafka.call("find_coordinator", version, key_type=1, coordinator_keys=(name,))
    return answer.coordinators[0]


async def init(
    kafka: RawConnection,
    version: int = 5,
    *,
    identity: Identity = (-1, -1),
    name: str = ID,
    within: datetime.timedelta = TIMEOUT,
    phases: tuple[bool, bool] = (False, False),
) -> Any:
    """The answer to InitProducerId; waits while an end is under way, or there are no producer ids yet."""
    values = {
        "transactional_id": name,
        "transaction_timeout": within,
        "producer_id": identity[0],
        "producer_epoch": identity[1],
    }
    if version >= TWO_PHASES_FROM:
        values |= {"enable2_pc": phases[0], "keep_prepared_txn": phases[1]}
    while True:
        answer = await call(kafka, "init_producer_id", version, **values)
        if answer.error_code not in {
            ErrorCode.CONCURRENT_TRANSACTIONS,
            ErrorCode.COORDINATOR_NOT_AVAILABLE,
            ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
            ErrorCode.NOT_COORDINATOR,
        }:
            return answer


async def begin(kafka: RawConnection, name: str = ID) -> Identity:
    """The identity of a new session."""
    assert (await find(kafka, name=name)).error_code == ErrorCode.NONE
    answer = await init(kafka, name=name)
    assert answer.error_code == ErrorCode.NONE
    return answer.producer_id, answer.producer_epoch


def topics_in(version: int, partitions: Mapping[str, tuple[int, ...]]) -> tuple[Any, ...]:
    topic = nested("add_partitions_to_txn", version, "AddPartitionsToTxnTopic")
    return tuple(topic(name=name, partitions=indexes) for name, indexes in partitions.items())


async def add(
    kafka: RawConnection,
    identity: Identity,
    partitions: Mapping[str, tuple[int, ...]],
    version: int = 3,
    *,
    name: str = ID,
    verify_only: bool = False,
) -> dict[tuple[str, int], ErrorCode]:
    """The code of each partition in the answer to AddPartitionsToTxn."""
    topics = topics_in(version, partitions)
    if version < 4:
        answer = await kafka.call(
            "add_partitions_to_txn",
            version,
            v3_and_below_transactional_id=name,
            v3_and_below_producer_id=identity[0],
            v3_and_below_producer_epoch=identity[1],
            v3_and_below_topics=topics,
        )
        rows = answer.results_by_topic_v3_and_below
    else:
        transaction = nested("add_partitions_to_txn", version, "AddPartitionsToTxnTransaction")
        one = transaction(
            transactional_id=name,
            producer_id=identity[0],
            producer_epoch=identity[1],
            verify_only=verify_only,
            topics=topics,
        )
        answer = await kafka.call("add_partitions_to_txn", version, transactions=(one,))
        assert answer.error_code == ErrorCode.NONE
        (result,) = answer.results_by_transaction
        assert result.transactional_id == name
        rows = result.topic_results
    return {
        (row.name, one.partition_index): ErrorCode(one.partition_error_code)
        for row in rows
        for one in row.results_by_partition
    }


async def end(
    kafka: RawConnection,
    identity: Identity,
    *,
    is_commit: bool = True,
    version: int = 4,
    name: str = ID,
) -> Any:
    """The answer to EndTxn."""
    return await kafka.call(
        "end_txn",
        version,
        transactional_id=name,
        producer_id=identity[0],
        producer_epoch=identity[1],
        committed=is_commit,
    )


async def describe(kafka: RawConnection, *names: str) -> list[Any]:
    """The rows of DescribeTransactions; kio cannot read those of ids without a first transaction: their start is -1."""
    answer = await kafka.call("describe_transactions", 0, transactional_ids=names)
    return list(answer.transaction_states)


async def state(kafka: RawConnection, name: str = ID) -> str:
    """The state of an id."""
    answer = await kafka.call("list_transactions", 0, state_filters=(), producer_id_filters=())
    rows = {row.transactional_id: row.transaction_state for row in answer.transaction_states}
    return str(rows[name])


async def until_state(kafka: RawConnection, wanted: str, name: str = ID) -> None:
    """Returns once the id is in a state."""
    while await state(kafka, name) != wanted:
        pass
