"""The rounds of the flusher."""

from __future__ import annotations

from echoless.broker.config.loading import LogFlush
from echoless.broker.partitions.flusher import Flusher
from echoless.storage.file_system import OutOfDescriptorsError
from tests.broker.partitions.led import Led


async def test_a_log_whose_change_failed_is_left_out() -> None:
    """It cannot be flushed before the next start, and the others are, in this round and later."""
    flusher = Flusher(interval_s=0, on_failure=lambda _: None)
    logs = [Led(LogFlush.COMMIT) for _ in range(3)]
    for led in logs:
        led.one.append(leader_epoch=1)
    logs[1].one.log.failure = OutOfDescriptorsError("orders-0", "the test says so")
    for rounds in (1, 2):
        for led in logs:
            flusher.mark_dirty(led.partition)
        await flusher.flush()
        assert [led.one.log.recovery_point for led in logs] == [rounds, 0, rounds]
        for led in (logs[0], logs[2]):
            led.one.append(leader_epoch=1)
