"""Large batches compared with the file system's own throughput, in one run.

    python -m benchmarks.file_system [--rounds N] [--megabytes M]

The broker gets ready-made 1 MB batches over a raw connection (acks=all, idempotent) and stores them
in segments of the default size; the other side writes the same number of 1 MB buffers into files of
the same size with one `write` each, on the same file system, and nothing else.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import shutil
import tempfile
import time
from pathlib import Path

from benchmarks.pairs import in_turn, print_pair
from benchmarks.raw_load import send_batches
from tests.support.echoless import Echoless

_BATCH_BYTES = 1_000_000
_FILE_BYTES = 134_217_728


def write_files(directory: Path, count: int) -> float:
    """MB/s of plain writes of new pages."""
    target = directory / "plain"
    target.mkdir()
    data = os.urandom(_BATCH_BYTES)
    begin = time.perf_counter()
    per_file = _FILE_BYTES // _BATCH_BYTES
    for number in range(0, count, per_file):
        with (target / str(number)).open("wb", buffering=0) as file:
            for _ in range(min(per_file, count - number)):
                file.write(data)
    elapsed = time.perf_counter() - begin
    shutil.rmtree(target)
    return count * _BATCH_BYTES / 1e6 / elapsed


def write_to_broker(directory: Path, count: int) -> float:
    """MB/s acknowledged by a fresh broker."""
    broker = Echoless(directory / "broker", {"message_max_bytes": "2000000"})
    broker.start()
    try:
        elapsed = asyncio.run(send_batches(broker.kafka_address, _BATCH_BYTES, count))
    finally:
        broker.kill()
        shutil.rmtree(directory / "broker")
    return count * _BATCH_BYTES / 1e6 / elapsed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--megabytes", type=int, default=1000)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        pairs = in_turn(
            arguments.rounds,
            lambda: {"mb": write_to_broker(directory, arguments.megabytes)},
            lambda: {"mb": write_files(directory, arguments.megabytes)},
        )
    print_pair("1 MB batches, MB/s", pairs["mb"], "Echoless", "plain write")


if __name__ == "__main__":
    main()
