"""A job is killed again and again while acknowledgements are lost; every row is stored once."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

import pytest

from tests.pipeline.exactly_once.attempts import KEYS, PARTITIONS, TOPIC, all_values
from tests.pipeline.exactly_once.job import BATCH_ROWS, BATCHES
from tests.support.apache_kafka import ApacheKafka, KafkaVersion
from tests.support.echoless import Echoless
from tests.support.lossy_proxy import LossyProxy
from tests.support.stored_values import read_stored_values
from tests.toolchain import require

pytestmark = [pytest.mark.crash, pytest.mark.slow]

REPOSITORY = Path(__file__).parents[3]
STAGES_BEFORE_KILL_MAX = 8
KILLS_MAX = 7
KILLS_MIN = 4
RUNS_MAX = 100


def run_until_done(address: str, directory: Path, dice: random.Random) -> int:
    """Starts the job until one run gets to the end; kills the others. How many were killed."""
    for kills in range(RUNS_MAX):
        command = [sys.executable, "-m", "tests.pipeline.exactly_once.job", address, str(directory)]
        job = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=REPOSITORY)
        assert job.stdout is not None
        try:
            for _ in range(dice.randint(2, STAGES_BEFORE_KILL_MAX) if kills < KILLS_MAX else 99):
                stage = job.stdout.readline().strip()
                assert stage, f"the job ended by itself, with {job.wait()}"
                if stage == "done":
                    return kills
        finally:
            job.kill()
            job.wait()
            job.stdout.close()
    raise AssertionError("the job never got to the end")


def check_stored(address: str) -> None:
    """Every row once, and those of a key in their order."""
    stored = read_stored_values(address, TOPIC, PARTITIONS)
    assert sorted(value for values in stored for value in values) == all_values(
        BATCHES * BATCH_ROWS
    )
    for values in stored:
        for key in range(KEYS):
            own = [value for value in values if int(value.split()[1]) % KEYS == key]
            assert own == sorted(own)


def test_a_killed_job_stores_each_row_once(tmp_path: Path) -> None:
    """Echoless: SIGKILL at any stage and lost answers leave no row out and none twice."""
    with LossyProxy(5) as proxy:
        settings = {"num_partitions": str(PARTITIONS)}
        broker = Echoless(tmp_path, settings, arguments=["--advertise", proxy.address])
        broker.start()
        proxy.target = broker.kafka_address
        kills = run_until_done(proxy.address, tmp_path, random.Random(11))
        check_stored(broker.kafka_address)
        broker.kill()
    print(f"\n{kills} kills, {proxy.swallowed} answers swallowed, {proxy.cut} connections cut")
    assert kills >= KILLS_MIN


@pytest.mark.kafka
@pytest.mark.parametrize(
    ("tool", "version"), [("kafka", KafkaVersion.V3_9), ("kafka-4", KafkaVersion.V4)]
)
def test_a_killed_job_stores_each_row_once_in_apache_kafka(
    tmp_path: Path, tool: str, version: KafkaVersion
) -> None:
    """The same against real Apache Kafkas."""
    require("java", tool)
    with LossyProxy(6) as proxy:
        settings = {
            "advertised.listeners": f"PLAINTEXT://{proxy.address}",
            "num.partitions": str(PARTITIONS),
        }
        kafka = ApacheKafka(tmp_path, settings, version=version)
        kafka.start()
        proxy.target = kafka.address
        kills = run_until_done(proxy.address, tmp_path, random.Random(12))
        proxy.is_lossy = False
        check_stored(kafka.address)
        kafka.kill()
    print(f"\n{kills} kills, {proxy.swallowed} answers swallowed, {proxy.cut} connections cut")
    assert kills >= KILLS_MIN
