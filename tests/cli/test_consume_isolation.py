"""`echoless consume --isolation`, against transactions in all states."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from echoless.protocol.control_records import MarkerType
from tests.support.in_process import in_process
from tests.support.raw_client import RawConnection, create_topic
from tests.support.transactions_by_hand import HandMadeTransactions

pytestmark = pytest.mark.slow

PATIENCE_S = 120


def consumed(address: str, *arguments: str) -> tuple[int, str, str]:
    """Exit code, standard output and error of `echoless consume t`."""
    command = [sys.executable, "-m", "echoless", "consume", "t", "--bootstrap-server", address]
    ran = subprocess.run(
        [*command, *arguments], capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    return ran.returncode, ran.stdout, ran.stderr


async def test_each_level_prints_its_records_and_ends(tmp_path: Path) -> None:
    """Whether the partition ends in a marker, in an aborted transaction, or in an open one; in a group, too."""
    async with in_process(tmp_path) as running:
        kafka = await RawConnection.open(running.kafka_address)
        await create_topic(kafka, "t", 1)
        await kafka.close()
        hand = HandMadeTransactions(running.broker.partitions["t", 0])

        async def both() -> tuple[str, str]:
            found = []
            for options in ((), ("--isolation", "read_committed")):
                code, out, err = await asyncio.to_thread(consumed, running.kafka_address, *options)
                assert (code, err) == (0, "")
                found.append(out)
            return found[0], found[1]

        hand.write(1, b"good")
        hand.write(2, b"bad")
        hand.end(2, MarkerType.ABORT)
        assert await both() == ("good\nbad\n", "")
        hand.end(1, MarkerType.COMMIT)
        assert await both() == ("good\nbad\n", "good\n")
        hand.write(2, b"worse")
        hand.end(2, MarkerType.ABORT)
        hand.write(3, b"open")
        hand.write(1, b"behind it")
        hand.end(1, MarkerType.COMMIT)
        assert await both() == ("good\nbad\nworse\nopen\nbehind it\n", "good\n")
        options = ("--isolation", "read_committed", "--group", "g")
        code, out, _ = await asyncio.to_thread(consumed, running.kafka_address, *options)
        assert (code, out) == (0, "good\n")
        hand.end(3, MarkerType.COMMIT)
        code, out, _ = await asyncio.to_thread(consumed, running.kafka_address, *options)
        assert (code, out) == (0, "open\nbehind it\n")
        code, _, err = await asyncio.to_thread(
            consumed, running.kafka_address, "--isolation", "serializable"
        )
        assert code != 0
        assert "read_committed" in err
