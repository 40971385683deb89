"""Echoless against real Apache Kafka, 3.9 and 4, in one run, with the same client.

    python -m benchmarks.versus_kafka [throughput|latency|start|memory ...] [--rounds N] [--seconds S]

All of it takes about twelve minutes. Kafka runs with the heap and collector of its own start script (1 GB, G1), on
the same disk. Prints a line per figure, and at the end the table of `docs/benchmarks.md`.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Final

from benchmarks.compiled import compile_tree, keep_compiled_code
from benchmarks.first_record import acknowledge_one
from benchmarks.own_topic import DELETES_SOON, KAFKA_DELETES_SOON, own_topic
from benchmarks.pairs import Pair, pairs_of, print_pair, run_load, several_in_turn
from tests.support.apache_kafka import ApacheKafka, KafkaVersion
from tests.support.echoless import SOURCES, Echoless

KAFKA_JVM = (
    *("-Xmx1G", "-Xms1G", "-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20"),
    *("-XX:InitiatingHeapOccupancyPercent=35", "-XX:+ExplicitGCInvokesConcurrent"),
)
SIZES: Final = {"100 B": 100, "1 KB": 1_000, "16 KB": 16_000, "1 MB": 1_000_000}
"""Bytes per batch, by the name in the table."""
_RECORDS_PER_S: Final = {"1 MB": 40}
"""The rate at which latency is measured, if it is not 200/s: far below what each broker can take."""
_ECHOLESS: Final = {
    "message_max_bytes": "2000000",
    "log_retention_bytes": "1000000000",
    **DELETES_SOON,
}
_KAFKA: Final = {
    "message.max.bytes": "2000000",
    "log.segment.bytes": "134217728",
    "log.retention.bytes": "1000000000",
    "log.retention.check.interval.ms": "5000",
    **KAFKA_DELETES_SOON,
}
"""Logs of a gigabyte: the disk takes what the page cache holds."""
_BYTES_PER_S_MAX: Final = 1_000_000_000
_BATCHES_PER_S_MAX: Final = 40_000
"""More than a load writes, if it has no rate."""
_START_ROUNDS_MAX: Final = 5


class Kafka(ApacheKafka):
    """One with the Java options of its own start script."""

    def __init__(self, directory: Path, version: KafkaVersion) -> None:
        super().__init__(directory, _KAFKA, jvm=KAFKA_JVM, version=version)


@dataclass(slots=True)
class Row:
    """One figure of Echoless beside that of each Kafka, by its version."""

    what: str
    beside: dict[str, Pair]
    limit: float | None = None
    """The target for the ratio, if there is one: below 1 the most allowed, else the least."""

    @property
    def is_met(self) -> bool | None:
        if self.limit is None:
            return None
        ratios = [pair.ratio for pair in self.beside.values()]
        return max(ratios) <= self.limit if self.limit < 1 else min(ratios) >= self.limit


@contextmanager
def brokers(versions: list[KafkaVersion]) -> Iterator[tuple[Echoless | Kafka, ...]]:
    """A broker of each kind on fresh data, Echoless first."""
    directory = Path(tempfile.mkdtemp(prefix="versus-kafka-"))
    kafkas = [Kafka(directory / one.value, one) for one in versions]
    found: tuple[Echoless | Kafka, ...] = (Echoless(directory / "echoless", _ECHOLESS), *kafkas)
    try:
        for broker in found:
            broker.start()
        yield found
    finally:
        for broker in found:
            broker.kill()
        shutil.rmtree(directory)


def throughput(versions: list[KafkaVersion], rounds: int, seconds: float) -> list[Row]:
    """Acknowledged batches/s by batch size, acks=all, idempotent."""
    rows = []
    with brokers(versions) as candidates:
        for name, size in SIZES.items():
            options = {"batch_bytes": size, "seconds": seconds, "warm_up": 1}
            found = _loads("throughput", candidates, rounds, versions, options)
            what = f"throughput, {name} batches, batches/s"
            rows.append(_row(what, found, "batches_per_s", limit=None if size < 1000 else 1.0))
    return rows


def latency(versions: list[KafkaVersion], rounds: int, seconds: float) -> list[Row]:
    """Milliseconds until a single record is acknowledged, at a low rate."""
    rows = []
    with brokers(versions) as candidates:
        for name, size in SIZES.items():
            rate = _RECORDS_PER_S.get(name, 200)
            options = {"batch_bytes": size, "seconds": seconds, "warm_up": 1, "rate": rate}
            found = _loads("latency", candidates, rounds, versions, options)
            what = f"latency, {name} at {rate}/s, ms"
            rows.append(_row(f"{what}: p50", found, "p50_ms"))
            rows.append(_row(f"{what}: p99", found, "p99_ms", limit=0.5))
    return rows


def start(versions: list[KafkaVersion], rounds: int, _seconds: float) -> list[Row]:
    """Milliseconds from the command to the first acknowledged idempotent record, with a raw client."""
    kafkas = [partial(_start_kafka, one) for one in versions]
    measures: list[Callable[[], Mapping[str, float]]] = [_start_echoless, *kafkas]
    found = _measured(measures, min(rounds, _START_ROUNDS_MAX), versions)
    return [_row("start to the first acknowledged record, ms", found, "ms", limit=0.067)]


def _start_echoless() -> Mapping[str, float]:
    with tempfile.TemporaryDirectory() as directory:
        return _until_first_record(Echoless(Path(directory)))


def _start_kafka(version: KafkaVersion) -> Mapping[str, float]:
    with tempfile.TemporaryDirectory() as directory:
        kafka = Kafka(Path(directory), version)
        kafka.format()
        return _until_first_record(kafka)


def _until_first_record(broker: Echoless | Kafka) -> Mapping[str, float]:
    begin = time.perf_counter()
    try:
        broker.start()
        acknowledge_one(broker.kafka_address)
        return {"ms": 1000 * (time.perf_counter() - begin)}
    finally:
        broker.kill()


def memory(versions: list[KafkaVersion], rounds: int, _seconds: float) -> list[Row]:
    """Resident memory after the first record, then idle."""
    with brokers(versions) as candidates:
        for broker in candidates:
            acknowledge_one(broker.kafka_address)
        measures = [partial(_resident, broker) for broker in candidates]
        found = _measured(measures, rounds, versions)
    return [_row("resident memory, idle, MB", found, "mb", limit=0.125)]


def _resident(broker: Echoless | Kafka) -> Mapping[str, float]:
    return {"mb": resident_mb(broker.process.pid)}


def resident_mb(pid: int) -> float:
    """Megabytes of memory that the process holds."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    raise LookupError(pid)


def _loads(
    kind: str,
    candidates: tuple[Echoless | Kafka, ...],
    rounds: int,
    versions: list[KafkaVersion],
    options: dict[str, float],
) -> dict[str, dict[str, Pair]]:
    measures = [partial(_load, kind, one, options) for one in candidates]
    return _measured(measures, rounds, versions)


def _load(kind: str, broker: Echoless | Kafka, options: dict[str, float]) -> Mapping[str, float]:
    address = broker.kafka_address
    with own_topic(address, (broker.data_dir,), _bytes_max(**options)) as topic:
        return run_load(kind, address, topic, **options)


def _bytes_max(
    *, batch_bytes: float, seconds: float, warm_up: float, rate: float = _BATCHES_PER_S_MAX
) -> int:
    """As much as a load may write, and no more: pages that the machine gives back stall what runs meanwhile."""
    return round(min(rate * batch_bytes, _BYTES_PER_S_MAX) * (seconds + warm_up))


def _measured(
    measures: Sequence[Callable[[], Mapping[str, float]]],
    rounds: int,
    versions: list[KafkaVersion],
) -> dict[str, dict[str, Pair]]:
    """By version: each figure of Echoless, which is the first candidate, beside that Kafka's."""
    ours, *theirs = several_in_turn(rounds, measures)
    return {one.value: pairs_of(ours, found) for one, found in zip(versions, theirs, strict=True)}


def _row(
    what: str, found: dict[str, dict[str, Pair]], figure: str, *, limit: float | None = None
) -> Row:
    row = Row(what, {version: pairs[figure] for version, pairs in found.items()}, limit)
    for version, pair in row.beside.items():
        print_pair(what, pair, second=f"Kafka {version}")
    return row


def table(rows: list[Row], versions: list[KafkaVersion]) -> str:
    """The rows as a table of Markdown."""
    names = [f"Kafka {one.value} | ratio" for one in versions]
    lines = [
        f"| what | Echoless | {' | '.join(names)} | target | met |",
        "|---" * (4 + 2 * len(versions)) + "|",
    ]
    return "\n".join([*lines, *map(_table_row, rows)])


def _table_row(row: Row) -> str:
    ours = statistics.median(pair.first for pair in row.beside.values())
    cells = [row.what, _number(ours)]
    for pair in row.beside.values():
        low, high = pair.spread
        cells += [_number(pair.second), f"{pair.ratio:.2f} [{low:.2f} .. {high:.2f}]"]
    if row.limit is None:
        return f"| {' | '.join([*cells, '-', ''])} |"
    bound = f"at {'most' if row.limit < 1 else 'least'} {row.limit:g}"
    return f"| {' | '.join([*cells, bound, 'yes' if row.is_met else '**no**'])} |"


def _number(value: float) -> str:
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


MEASUREMENTS = {"start": start, "memory": memory, "latency": latency, "throughput": throughput}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", nargs="*", default=list(MEASUREMENTS))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=3)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    versions = [one for one in KafkaVersion if one.is_there]
    for one in set(KafkaVersion) - set(versions):
        print(f"left out: Kafka {one.value}, which `python -m tests.toolchain` gets")
    keep_compiled_code()
    compile_tree(SOURCES)
    rows: list[Row] = []
    for name in arguments.what:
        rows += MEASUREMENTS[name](versions, arguments.rounds, arguments.seconds)
    print(table(rows, versions))
    if arguments.json:
        arguments.json.write_text(json.dumps([asdict(one) for one in rows], indent=2))


if __name__ == "__main__":
    main()
