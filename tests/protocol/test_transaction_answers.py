"""The answers that are packed by hand are those of kio."""

from __future__ import annotations

import pytest

from echoless.broker.handlers.apis import API_BY_KEY
from echoless.protocol.errors import ErrorCode
from echoless.protocol.transaction_answers import (
    encode_add_partitions_response,
    encode_end_txn_response,
)

ADD_PARTITIONS, END = API_BY_KEY[24], API_BY_KEY[26]


@pytest.mark.parametrize("version", range(END.version_min, END.version_max + 1))
@pytest.mark.parametrize("identity", [(-1, -1), (2**40, 32_766)])
def test_end_txn(version: int, identity: tuple[int, int]) -> None:
    fields = {"error_code": ErrorCode.PRODUCER_FENCED, "throttle_time": 0}
    fields |= {"producer_id": identity[0], "producer_epoch": identity[1]}
    found = encode_end_txn_response(version, ErrorCode.PRODUCER_FENCED, *identity)
    assert found == END.encode_response(version, fields)


@pytest.mark.parametrize("version", range(4))
@pytest.mark.parametrize(
    "topics", [[], [("t", [0])], [("orders", [0, 200, 3]), ("\u00e9" * 200, []), ("b", [1])]]
)
def test_add_partitions(version: int, topics: list[tuple[str, list[int]]]) -> None:
    code = ErrorCode.CONCURRENT_TRANSACTIONS
    rows = [
        {
            "name": name,
            "results_by_partition": [
                {"partition_index": index, "partition_error_code": code} for index in indexes
            ],
        }
        for name, indexes in topics
    ]
    fields = {"throttle_time": 0, "results_by_topic_v3_and_below": rows}
    found = encode_add_partitions_response(version, topics, code)
    assert found == ADD_PARTITIONS.encode_response(version, fields)
