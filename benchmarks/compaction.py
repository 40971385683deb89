"""Compaction: how fast, in how much memory, and what a producer notices of it.

    python -m benchmarks.compaction [--megabytes 24] [--rounds 3] [--without-kafka]

*pass*: MB of log that one pass reads in a second, nothing else running, and the bytes that each key takes.
*cleaner* and *produce*: the same of a whole broker, beside Apache Kafka 3.9, and what a producer notices of it
(`compaction_brokers.py`). About three minutes.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import tempfile
import time
import tracemalloc
from pathlib import Path

from benchmarks.compaction_brokers import MEGABYTE, keyed_batch, measure_brokers
from echoless.protocol.record_batch import read_header
from echoless.storage.compaction.cleaning import Cleaning
from echoless.storage.compaction.key_map import KeyMap, short_key
from echoless.storage.compaction.plan import CompactionRules
from echoless.storage.compaction.swap import Cleaned
from echoless.storage.log import Log
from echoless.storage.log_config import LogConfig
from echoless.storage.opening import LogOpening
from echoless.storage.os_file_system import OsFileSystem


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=int, default=24)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--without-kafka", action="store_true")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        measure_pass(Path(directory) / "log", arguments.megabytes)
    for key_bytes in (8, 16, 36):
        print(f"key map, keys of {key_bytes} bytes: {bytes_per_key(key_bytes):.0f} bytes per key")
    asyncio.run(
        measure_brokers(
            arguments.megabytes * MEGABYTE, arguments.rounds, has_kafka=not arguments.without_kafka
        )
    )


def measure_pass(directory: Path, megabytes: int) -> None:
    """Writes a log, then cleans it as fast as this process can."""
    directory.mkdir()
    rules = CompactionRules(min_dirty_ratio=0.0)
    config = LogConfig(segment_bytes=16 << 20, is_compacted=True, compaction_rules=rules)
    log = Log.open(
        LogOpening(
            directory=str(directory), config=config, fs=OsFileSystem(), now_ms=0, is_new=True
        )
    )
    rng = random.Random(7)
    while log.size_bytes < megabytes * MEGABYTE:
        batch = keyed_batch(rng)
        log.append(batch, read_header(batch), 0, 0)
    log.roll()
    log.flush()
    before, end = log.size_bytes, log.log_end_offset
    found = log.compaction.find_pass(
        config, log_start_offset=0, log_end_offset=end, limit=end, now_ms=0
    )
    assert found is not None
    begun = time.monotonic()
    cleaning = log.compaction.start(found, config, map_bytes_max=1 << 30, now_ms=0, steady_ms=0)
    carry_out(log, cleaning, config)
    took = time.monotonic() - begun
    print(
        f"pass: {before / MEGABYTE:.0f} MB became {log.size_bytes / MEGABYTE:.0f} MB in {took:.1f} s: "
        f"{before / MEGABYTE / took:.1f} MB/s of log, {end / took:,.0f} records/s, "
        f"{cleaning.report.keys} keys"
    )
    log.close()


def carry_out(log: Log, cleaning: Cleaning, config: LogConfig) -> None:
    for step in cleaning.steps():
        if isinstance(step, Cleaned):
            swap = log.compaction.start_swap(step, config)
            assert swap is not None
            swap.run()
            log.finish_swap(swap)


def bytes_per_key(key_bytes: int) -> float:
    """Memory of a map of 349,525 keys, which fills the default buffer, by key."""
    count = 64 * 1024 * 1024 // 192
    tracemalloc.start()
    keys = KeyMap(1 << 30)
    for number in range(count):
        keys.offsets[short_key(b"%0*d" % (key_bytes, number))] = 2**40 + number
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return held / count


if __name__ == "__main__":
    main()
