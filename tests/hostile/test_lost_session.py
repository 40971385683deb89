"""A broker that the coordinator has given up acknowledges nothing more, and ends."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest

from echoless.broker.tree.node_tree import SessionState
from tests.hostile.target import assert_quiet_log, talk, until
from tests.hostile.tmpfs import mounted_tmpfs
from tests.support.echoless import Echoless
from tests.support.in_process import in_process
from tests.support.raw_batches import plain_batch
from tests.support.raw_client import RawConnection, create_topic
from tests.support.raw_produce import PartitionData

NOT_LEADER_OR_FOLLOWER = 6


async def test_nothing_is_acknowledged_after_a_lost_session(tmp_path: Path):
    """Another broker may lead by now: code 6 for every produce, and the broker wants to end."""
    async with in_process(tmp_path) as running:
        connection = await RawConnection.open(running.kafka_address)
        await create_topic(connection, "led", 1)
        row = PartitionData("led", 0, plain_batch([b"x"]).encode())
        assert (await connection.produce(8, -1, [row]))[0].error == 0
        running.broker.tree._watches.session_changed(SessionState.LOST)
        await running.broker.session_lost.wait()
        for acks in (1, -1):
            (answer,) = await connection.produce(8, acks, [row])
            assert answer.error == NOT_LEADER_OR_FOLLOWER
        await connection.close()


@pytest.mark.slow
def test_a_lost_session_ends_the_process(tmp_path: Path):
    """A coordination file that cannot be written: exit 1, in order, with the reason in the log."""
    with mounted_tmpfs(tmp_path / "disk", "size=4m") as disk:
        broker = Echoless(tmp_path / "broker", {"producer_id_block_size": "1"})
        broker.data_dir = disk / "data"
        broker.start()
        fill(disk / "ballast")
        init_producer_id = bytes.fromhex("00000013 0016 0000 00000001 0003 626164 ffff 00007530")
        for _ in range(20):
            with contextlib.suppress(ConnectionError):  # it may be gone by now
                talk(broker.kafka_address, init_producer_id)
        until(lambda: not broker.process.is_running, "the broker ends")
        assert broker.process.exit_status == 1
    log = broker.process.log()
    assert "the session with the coordinator is lost" in log
    assert_quiet_log(broker)


def fill(path: Path) -> None:
    """Takes every byte that is left."""
    with path.open("wb", buffering=0) as ballast:
        try:
            while True:
                ballast.write(bytes(4096))
        except OSError:
            return
