"""Backups: a copy of a data directory is a broker, wherever it is put."""

from __future__ import annotations

import shutil
from pathlib import Path

from tests.support.echoless import Echoless
from tests.support.raw_batches import plain_batch
from tests.support.raw_client import RawConnection, create_topic, fetch_log
from tests.support.raw_produce import PartitionAnswer, PartitionData

_PRODUCER_ID = 7


async def _produced(kafka: RawConnection, sequence: int) -> PartitionAnswer:
    batch = plain_batch(
        [b"v%d" % sequence],
        producer_id=_PRODUCER_ID,
        producer_epoch=0,
        base_sequence=sequence,
    )
    (answer,) = await kafka.produce(9, -1, [PartitionData("t", 0, batch.encode())])
    return answer


async def test_a_copy_of_a_stopped_broker_goes_on_where_it_was(tmp_path: Path) -> None:
    """Records, topics and producers are those of the copy: what was in it is a repeat, what was not is new."""
    broker = Echoless(tmp_path / "old")
    broker.start()
    kafka = await RawConnection.open(broker.kafka_address)
    await create_topic(kafka, "t", 1)
    for sequence in range(3):
        assert (await _produced(kafka, sequence)).error == 0
    await kafka.close()
    assert broker.terminate() == 0
    restored = Echoless(tmp_path / "new")
    shutil.copytree(broker.data_dir, restored.data_dir)
    restored.start()
    kafka = await RawConnection.open(restored.kafka_address)
    before = await fetch_log(kafka, "t", 0)
    repeat = await _produced(kafka, 1)
    following = await _produced(kafka, 3)
    after = await fetch_log(kafka, "t", 0)
    await kafka.close()
    restored.kill()
    assert [batch.base_offset for batch in before] == [0, 1, 2]
    assert (repeat.error, repeat.base_offset) == (0, 1)
    assert (following.error, following.base_offset) == (0, 3)
    assert [batch.base_offset for batch in after] == [0, 1, 2, 3]
