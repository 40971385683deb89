"""WriteTxnMarkers: transactions that an administrator ends. The writer: `tests/broker/records/test_markers.py`."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from echoless.protocol.control_records import NO_NUMBER, EndMarker, MarkerType, read_marker
from tests.support.in_process import Running
from tests.support.raw_client import RawConnection, create_topic, nested
from tests.support.transactions_by_hand import HandMadeTransactions

P = 7


async def test_an_administrator_ends_a_hanging_transaction(
    running: Running, kafka: RawConnection
) -> None:
    """Rows of one producer are one row; a marker of no producer is refused, and the others are not."""
    await create_topic(kafka, "t", 1)
    partition = running.broker.partitions["t", 0]
    HandMadeTransactions(partition).write(P, b"a")
    answer = await ask_as_tool(kafka, [(P, True), (-1, True), (P, False)])
    assert answer == [(P, [[("t", 0, 0)], [("t", 0, 0)]]), (-1, [[("t", 0, 42)]])]
    markers = [read_marker(partition.log.read(offset, 1, 3)) for offset in (1, 2)]
    assert markers == [
        EndMarker(kind, 4, NO_NUMBER) for kind in (MarkerType.COMMIT, MarkerType.ABORT)
    ]
    assert partition.last_stable_offset == partition.log.log_end_offset == 3


@pytest.mark.parametrize(("generation", "code"), [(0, 0), (1, 0), (2, 47)])
async def test_version_2_says_of_which_generation_the_transaction_is(
    running: Running, kafka: RawConnection, generation: int, code: int
) -> None:
    """In the second, the marker of the open transaction has a higher epoch than its batches: this one is an earlier one's."""
    await create_topic(kafka, "t", 1)
    partition = running.broker.partitions["t", 0]
    HandMadeTransactions(partition).write(P, b"a")
    answer = await ask_as_tool(kafka, [(P, True)], version=2, transaction_version=generation)
    assert answer == [(P, [[("t", 0, code)]])]
    assert partition.log.log_end_offset == (1 if code else 2)
    if not code:  # nothing is open: a repetition, in either generation
        again = await ask_as_tool(kafka, [(P, True)], version=2, transaction_version=2)
        assert again == [(P, [[("t", 0, 0)]])]


async def ask_as_tool(
    kafka: RawConnection, wanted: Sequence[tuple[int, bool]], version: int = 1, **more: int
) -> list[tuple[int, list[list[tuple[str, int, int]]]]]:
    """Producer id, and for each of its topics name, partition and code."""
    topic = nested("write_txn_markers", version, "WritableTxnMarkerTopic")
    writable = nested("write_txn_markers", version, "WritableTxnMarker")
    markers = [
        writable(
            producer_id=producer_id,
            producer_epoch=0,
            transaction_result=is_commit,
            topics=(topic(name="t", partition_indexes=(0,)),),
            coordinator_epoch=4,
            **more,
        )
        for producer_id, is_commit in wanted
    ]
    answer = await kafka.call("write_txn_markers", version, markers=tuple(markers))
    return [
        (
            row.producer_id,
            [
                [(t.name, p.partition_index, int(p.error_code)) for p in t.partitions]
                for t in row.topics
            ],
        )
        for row in answer.markers
    ]
