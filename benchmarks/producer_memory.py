"""The cost of a producer id: resident bytes at a million of them, and time per step of an append.

    python -m benchmarks.producer_memory [--producers 1000000] [--window 5]

Memory is the growth of the resident set of this fresh process (`/proc/self/statm`) while it stores
that many producers with full windows, divided by their number; the snapshot comes after. Times are
this process's processor time, the best of several rounds, including the loop's own cost.
"""

from __future__ import annotations

import argparse
import gc
import os
import time
from collections.abc import Callable
from pathlib import Path
from timeit import timeit

from echoless.protocol.dedup import (
    Append,
    BatchMetadata,
    PartitionRules,
    ProducerEntry,
    commit,
    decide,
)
from echoless.protocol.record_batch import BatchHeader
from echoless.storage.producers.snapshot import decode_snapshot, encode_snapshot
from echoless.storage.producers.state import ProducerStates

NOW_MS = 1_763_685_000_000
ROUNDS = 10
RULES = PartitionRules(has_held_records=True)


def resident_bytes() -> int:
    """The resident set of this process."""
    pages = Path("/proc/self/statm").read_text().split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


def full_entry(producer_id: int, window: int) -> ProducerEntry:
    """A producer's entry with its whole window and realistically large numbers."""
    base_offset = 10**9 + producer_id * window * 10
    batches = tuple(
        BatchMetadata(
            1000 + 10 * n, base_offset + 10 * n, 9, NOW_MS + n, 3_000_000_000 + producer_id % 10**9
        )
        for n in range(window)
    )
    return ProducerEntry(3, 0, NOW_MS + producer_id, batches)


def header_at(producer_id: int, base_sequence: int) -> BatchHeader:
    """A batch of ten records."""
    return BatchHeader(
        0, 1000, 0, 2, 3_000_000_000, 0, 9, NOW_MS, NOW_MS, producer_id, 3, base_sequence, 10
    )


def measure(name: str, count: int, run: Callable[[], object]) -> None:
    """Prints the best time of one call's `count` steps."""
    best = min(_seconds(run) for _ in range(ROUNDS))
    print(f"{name:<58}{best / count * 1e9:>9.0f} ns")


def _seconds(run: Callable[[], object]) -> float:
    start = time.process_time()
    run()
    return time.process_time() - start


def append(states: ProducerStates, headers: list[BatchHeader]) -> None:
    """The leader's work for each batch, except the write."""
    for header in headers:
        entry = states.get(header.producer_id)
        if type(decide(entry, header, RULES)) is not Append:
            raise AssertionError(header)
        states.put(header.producer_id, commit(entry, header, 10**9, NOW_MS))


def append_rounds(producers: int, batches_each: int) -> Callable[[], None]:
    """One run: every producer appends `batches_each` batches, taking turns."""
    headers = [header_at(i, 10 * n) for n in range(batches_each) for i in range(producers)]
    return lambda: append(ProducerStates(), headers)


def measure_memory(producers: int, window: int) -> ProducerStates:
    """Fills the states and prints what that took."""
    gc.collect()
    before = resident_bytes()
    states = ProducerStates(window)
    slowest = 0.0
    start = last = time.process_time()
    for producer_id in range(producers):
        states.put(producer_id, full_entry(producer_id, window))
        now = time.process_time()
        slowest, last = max(slowest, now - last), now
    seconds = last - start
    gc.collect()
    grown = resident_bytes() - before
    print(f"{producers} producer ids, window {window}: {grown / producers:.1f} bytes each")
    print(f"filled in {seconds:.1f} s, the slowest put took {slowest * 1e3:.2f} ms")
    return states


def measure_table(states: ProducerStates, producers: int) -> None:
    """Times get and put of long-idle producers, spread over all of them."""
    step = 7919
    ids = [number * step % producers for number in range(100_000)]
    entry = full_entry(0, states.window)

    def get_all() -> None:
        for producer_id in ids:
            states.get(producer_id)

    def put_all() -> None:
        for producer_id in ids:
            states.put(producer_id, entry)

    measure("get, idle producer", len(ids), get_all)
    measure("put, idle producer (and another one is packed)", len(ids), put_all)


def measure_steps() -> None:
    """Times each step of one busy producer's append separately."""
    states = ProducerStates()
    entry, header = full_entry(7, 5), header_at(7, 1041)
    states.put(7, entry)
    count = 20_000

    def measure_step(name: str, step: Callable[[], object]) -> None:
        measure(name, count, lambda: timeit(step, number=count))

    measure_step("get, busy producer", lambda: states.get(7))
    measure_step("put, busy producer", lambda: states.put(7, entry))
    measure_step("decide", lambda: decide(entry, header, RULES))
    measure_step("commit", lambda: commit(entry, header, 10**9, NOW_MS))


def measure_snapshot(states: ProducerStates) -> None:
    """Prints how long a snapshot takes to make and to load."""
    start = time.process_time()
    data = encode_snapshot(42, states)
    encoded = time.process_time()
    snapshot = decode_snapshot(data)
    decoded = time.process_time()
    snapshot.load_into(ProducerStates(states.window))
    loaded = time.process_time()
    print(f"snapshot: {len(data) / 1e6:.0f} MB, encode {encoded - start:.2f} s, ", end="")
    print(f"decode {decoded - encoded:.2f} s, load {loaded - decoded:.2f} s")


def measure_sweeps(states: ProducerStates) -> None:
    """Prints the cost of the rare passes over all producers."""
    start = time.process_time()
    states.reconfigure(window=states.window + 1)
    widened = time.process_time()
    expired = states.expire(2 * NOW_MS)
    seconds = time.process_time() - widened
    print(
        f"window widened in {widened - start:.2f} s, {expired} producers expired in {seconds:.2f} s"
    )


def main() -> None:
    """Measures memory first, while the process is fresh."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--producers", type=int, default=1_000_000)
    parser.add_argument("--window", type=int, default=5)
    options = parser.parse_args()
    states = measure_memory(options.producers, options.window)
    measure_snapshot(states)
    measure_table(states, options.producers)
    measure_sweeps(states)
    measure_steps()
    measure("get + decide + commit + put, 1 producer", 20_000, append_rounds(1, 20_000))
    measure("get + decide + commit + put, 100 producers", 20_000, append_rounds(100, 200))
    measure("get + decide + commit + put, 5000 producers", 20_000, append_rounds(5_000, 4))


if __name__ == "__main__":
    main()
