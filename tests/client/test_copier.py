"""A copier is killed again and again while acknowledgements are lost; every line is stored once.

The lines' numbers are their timestamps, so a second run makes the same bytes; retention by time is off
for it.
"""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

import pytest

from tests.client.file_copier import PARTITIONS, TOPIC
from tests.support.apache_kafka import ApacheKafka
from tests.support.echoless import Echoless
from tests.support.lossy_proxy import LossyProxy
from tests.support.stored_values import read_stored_values
from tests.toolchain import require

pytestmark = [pytest.mark.crash, pytest.mark.slow]

REPOSITORY = Path(__file__).parents[2]
LINES = 3_000
STAGES_BEFORE_KILL_MAX = 6
RUNS_MAX = 200


def copy_until_done(address: str, checkpoint: Path, dice: random.Random) -> int:
    """Starts the copier until one run gets to the end; kills the others. How many were killed."""
    for kills in range(RUNS_MAX):
        command = [
            sys.executable,
            "-m",
            "tests.client.file_copier",
            address,
            checkpoint,
            str(LINES),
        ]
        copier = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=REPOSITORY)
        assert copier.stdout is not None
        try:
            for _ in range(dice.randint(1, STAGES_BEFORE_KILL_MAX)):
                stage = copier.stdout.readline().strip()
                assert stage, f"the copier ended by itself, with {copier.wait()}"
                if stage == "done":
                    assert copier.wait() == 0
                    return kills
        finally:
            copier.kill()
            copier.wait()
            copier.stdout.close()
    raise AssertionError("the copier never got to the end")


def check_stored(address: str) -> None:
    """Every line once, in the order of the file, in its partition."""
    stored = read_stored_values(address, TOPIC, PARTITIONS)
    for partition, values in enumerate(stored):
        expected = [str(number).encode() for number in range(partition, LINES, PARTITIONS)]
        assert values == expected, f"partition {partition}: {len(values)} of {len(expected)}"


def test_killed_copier_stores_each_line_once(tmp_path: Path) -> None:
    """Echoless: SIGKILL at any stage and lost answers leave no line out and none twice."""
    dice = random.Random(11)
    with LossyProxy(5) as proxy:
        settings = {"num_partitions": str(PARTITIONS), "log_retention_ms": "-1"}
        broker = Echoless(tmp_path, settings, arguments=["--advertise", proxy.address])
        broker.start()
        proxy.target = broker.kafka_address
        kills = copy_until_done(proxy.address, tmp_path / "checkpoint.json", dice)
        check_stored(broker.kafka_address)
        broker.kill()
    print(f"\n{kills} kills, {proxy.swallowed} answers swallowed, {proxy.cut} connections cut")
    assert kills >= 20
    assert proxy.swallowed + proxy.cut > kills


@pytest.mark.kafka
def test_killed_copier_stores_each_line_once_in_apache_kafka(tmp_path: Path) -> None:
    """The same against a real Apache Kafka."""
    require("java", "kafka")
    dice = random.Random(12)
    with LossyProxy(6) as proxy:
        kafka = ApacheKafka(
            tmp_path,
            {
                "advertised.listeners": f"PLAINTEXT://{proxy.address}",
                "num.partitions": str(PARTITIONS),
                "log.retention.ms": "-1",
            },
        )
        kafka.start()
        proxy.target = kafka.address
        kills = copy_until_done(proxy.address, tmp_path / "checkpoint.json", dice)
        proxy.is_lossy = False
        check_stored(kafka.address)
        kafka.kill()
    print(f"\n{kills} kills, {proxy.swallowed} answers swallowed, {proxy.cut} connections cut")
    assert kills >= 20
