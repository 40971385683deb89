"""Data that was damaged while a broker was down: nothing is deleted, and the way back is one that is named."""

from __future__ import annotations

import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest
from confluent_kafka import Producer

from tests.hostile.target import admin
from tests.hostile.test_start import run
from tests.support.echoless import Echoless
from tests.support.stored_values import read_stored_values

pytestmark = [pytest.mark.slow]

TOPIC, RECORDS = "orders", 50
METADATA = "partition.metadata"


def fill(broker: Echoless) -> list[bytes]:
    """Sends records in several batches; returns what is stored."""
    producer = Producer({"bootstrap.servers": broker.kafka_address, "enable.idempotence": True})
    for number in range(RECORDS):
        producer.produce(TOPIC, b"%d" % number)
        if number % 10 == 0:
            assert producer.flush(30) == 0
    assert producer.flush(30) == 0
    return stored(broker)


def stored(broker: Echoless) -> list[bytes]:
    (values,) = read_stored_values(broker.kafka_address, TOPIC, 1)
    return values


def echoless(*arguments: object) -> str:
    command = [sys.executable, "-m", "echoless", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout


def flip(path: Path, position: int) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= 1
    path.write_bytes(data)


def test_a_flipped_bit_in_a_topic_id_costs_nothing(tmp_path: Path):
    """In an older broker's file, without a checksum: the log is set aside, and comes back."""
    broker = Echoless(tmp_path)
    broker.start()
    values = fill(broker)
    assert broker.terminate() == 0
    metadata = broker.data_dir / f"{TOPIC}-0" / METADATA
    version, topic_id, _ = metadata.read_bytes().splitlines(keepends=True)
    other = topic_id.replace(b": ", b": A", 1)[:-2] + b"\n"
    metadata.write_bytes(version + other)
    broker.start()
    status, health = admin(broker, "/health")
    assert status == 200
    (stray,) = health["strays"]
    assert (stray["topic"], stray["records"]) == (TOPIC, RECORDS)
    assert stray["name"] in broker.process.log()
    assert broker.terminate() == 0
    echoless("strays", "restore", broker.data_dir, stray["name"], "--replace")
    broker.start()
    assert stored(broker) == values
    assert broker.terminate() == 0


def test_a_flipped_bit_with_its_checksum_is_refused(tmp_path: Path):
    """One line: the file, and a command; afterwards everything is there again."""
    broker = Echoless(tmp_path)
    broker.start()
    values = fill(broker)
    assert broker.terminate() == 0
    flip(broker.data_dir / f"{TOPIC}-0" / METADATA, 25)
    code, line = run(broker.data_dir)
    assert code == 1
    command = line.rpartition("run: echoless ")[2].split()
    assert command[:2] == ["strays", "set-aside"]
    name = echoless(*command).split()[-1]
    broker.start()  # begins a new log under the topic's id
    assert broker.terminate() == 0
    echoless("strays", "restore", broker.data_dir, name, "--replace")
    broker.start()
    assert stored(broker) == values
    assert broker.terminate() == 0


def test_acknowledged_records_are_not_cut_in_silence(tmp_path: Path):
    """With `log_flush=commit` damage before whole batches refuses the start until it is accepted."""
    broker = Echoless(tmp_path, {"log_flush": "commit"})
    broker.start()
    values = fill(broker)
    broker.kill()
    # Below the recovery point any damage is refused; a slow machine may have written one by now.
    (broker.data_dir / "recovery-point-offset-checkpoint").unlink(missing_ok=True)
    flip(broker.data_dir / f"{TOPIC}-0" / f"{0:020d}.log", 65)
    code, line = run(broker.data_dir, "--set", "log_flush=commit")
    assert code == 1
    assert "whole batches follow" in line
    command = line.rpartition("run: echoless ")[2].split()
    assert command[0] == "accept-loss"
    echoless(*command)
    broker.start()
    assert stored(broker) == []
    assert values != []
    with urllib.request.urlopen(f"http://{broker.admin_address}/metrics", timeout=20) as answer:
        assert b"echoless_recovery_cuts_total 1.0" in answer.read()
    assert "cutting" in broker.process.log()
    assert broker.terminate() == 0
