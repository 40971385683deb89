"""Two-phase commit (KIP-939, a preview) over a socket, and through a restart of the broker."""

from __future__ import annotations

import datetime
from dataclasses import replace
from pathlib import Path

import pytest

from echoless.protocol.errors import ErrorCode
from tests.broker.handlers.one_transaction import ID, describe, end, find, init, until_state
from tests.broker.until import until
from tests.support.in_process import Running, in_process
from tests.support.raw_batches import TRANSACTIONAL, plain_batch
from tests.support.raw_client import RawConnection, create_topic
from tests.support.raw_produce import PartitionData

NEW, KEEP = (True, False), (True, True)
SHORT = datetime.timedelta(milliseconds=1)


async def newest(kafka: RawConnection) -> int:
    """The newest version of InitProducerId that the broker lists."""
    answer = await kafka.call(
        "api_versions", 3, client_software_name="t", client_software_version="1"
    )
    return next(one.max_version for one in answer.api_keys if one.api_key == 22)


async def send(kafka: RawConnection, identity: tuple[int, int], version: int = 12) -> ErrorCode:
    """The code of a batch of one record."""
    plain = plain_batch(
        [b"v"], producer_id=identity[0], producer_epoch=identity[1], base_sequence=0
    )
    data = PartitionData("t", 0, replace(plain, attributes=TRANSACTIONAL).encode())
    (answer,) = await kafka.produce(version, -1, [data], ID)
    return ErrorCode(answer.error)


def stable(running: Running) -> tuple[int, int]:
    """The last stable offset, and the end of the log."""
    found = running.broker.partitions["t", 0]
    return found.last_stable_offset, found.log.log_end_offset


async def test_it_is_neither_listed_nor_allowed_by_default(tmp_path: Path) -> None:
    """A client never sees the version; one that sends it is refused with 53."""
    async with in_process(tmp_path) as running:
        kafka = await RawConnection.open(running.kafka_address)
        assert await newest(kafka) == 5
        await find(kafka)
        answer = await init(kafka, 6, phases=NEW)
        assert answer.error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        assert (await init(kafka, 6)).error_code == ErrorCode.NONE
        await kafka.close()


@pytest.mark.parametrize("is_commit", [True, False])
async def test_a_prepared_transaction_outlives_client_and_broker(
    tmp_path: Path, *, is_commit: bool
) -> None:
    """It has no timeout; a new session keeps it, learns whose it is, adds nothing, and ends it."""
    enabled = {"transaction_two_phase_commit_enable": True}
    async with in_process(tmp_path, **enabled) as running:
        kafka = await RawConnection.open(running.kafka_address)
        assert await newest(kafka) == 6
        await create_topic(kafka, "t", 1)
        await find(kafka)
        first = await init(kafka, 6, phases=NEW, within=SHORT)
        assert (first.error_code, first.ongoing_txn_producer_id) == (ErrorCode.NONE, -1)
        old = (first.producer_id, first.producer_epoch)
        assert await send(kafka, old) is ErrorCode.NONE
        await kafka.close()
    async with in_process(tmp_path, **enabled) as running:
        kafka = await RawConnection.open(running.kafka_address)
        kept = await init(kafka, 6, phases=KEEP)
        assert (kept.ongoing_txn_producer_id, kept.ongoing_txn_producer_epoch) == old
        new = (kept.producer_id, kept.producer_epoch)
        assert new == (old[0], old[1] + 1)
        (row,) = await describe(kafka, ID)
        assert row.transaction_state == "Ongoing"
        assert row.transaction_timeout // datetime.timedelta(milliseconds=1) == 2**31 - 1
        assert stable(running) == (0, 1)
        assert await send(kafka, new) is ErrorCode.INVALID_TXN_STATE
        assert (await end(kafka, old, version=5)).error_code == ErrorCode.PRODUCER_FENCED
        assert (await end(kafka, new, version=5, is_commit=is_commit)).error_code == ErrorCode.NONE
        await until_state(kafka, "CompleteCommit" if is_commit else "CompleteAbort")
        await until(lambda: stable(running) == (2, 2))
        aborted = running.broker.partitions["t", 0].log.aborted_transactions(0, 2)
        assert bool(aborted) is not is_commit
        await kafka.close()
