"""`python -m benchmarks.transactions`: transactions of Echoless beside those of Apache Kafka, same client, same machine.

    python -m benchmarks.transactions [throughput] [latency] [--brokers 1 3] [--partitions 1 10 100] [--producers 1 50]

For one broker of each kind, and then for clusters of three: transactions/s and the processor time that the brokers take for
one, with a record in each of 1, 10 and 100 partitions and its commit, for 1 and 50 producers; the same records flushed by plain
idempotent producers, and what transactions cost beside that; and the time from a record to a reader of committed records. All
brokers run all the time and are measured in turn; those that are not measured are idle. Where other programs run on the machine,
only ratios of processor time mean something. Kafka has the heap and the collector of its own start script.
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks.compiled import compile_tree, keep_compiled_code
from benchmarks.many_partitions import processor_s
from benchmarks.pairs import pairs_of, print_pair, several_in_turn
from benchmarks.versus_kafka import KAFKA_JVM
from tests.support.apache_kafka import ApacheKafka, KafkaVersion
from tests.support.apache_kafka_cluster import ApacheKafkaCluster
from tests.support.cluster import Cluster
from tests.support.echoless import SOURCES, Echoless

_PRODUCERS_PER_PROCESS: Final = 10
_TIMEOUT_S: Final = 120.0
_STATE_PARTITIONS: Final = "8"
_NAMES: Final = itertools.count()


@dataclass(frozen=True)
class Brokers:
    """Running brokers of one kind."""

    name: str
    bootstrap: str
    pids: Sequence[int]

    def processor_s(self) -> float:
        """Processor time that they have taken so far, also in threads that have ended: Kafka's compiler has some."""
        return sum(map(processor_s, self.pids))


@contextmanager
def single(versions: Sequence[KafkaVersion]) -> Iterator[list[Brokers]]:
    """One broker of each kind, Echoless first."""
    settings = {"transaction.state.log.num.partitions": _STATE_PARTITIONS}
    with tempfile.TemporaryDirectory(prefix="transactions-") as name, ExitStack() as stack:
        directory = Path(name)
        brokers: dict[str, Echoless | ApacheKafka] = {"Echoless": Echoless(directory / "echoless")}
        for version in versions:
            brokers[f"Kafka {version.value}"] = ApacheKafka(
                directory / version.value, settings, jvm=KAFKA_JVM, version=version
            )
        for one in brokers.values():
            stack.callback(one.kill)
            one.start()
        yield [Brokers(kind, one.kafka_address, [one.process.pid]) for kind, one in brokers.items()]


@contextmanager
def three(_versions: Sequence[KafkaVersion]) -> Iterator[list[Brokers]]:
    """A cluster of three of each kind, Echoless first; state of transactions and of the topics needs two in-sync replicas."""
    kafka_settings = {
        "transaction.state.log.num.partitions": _STATE_PARTITIONS,
        "transaction.state.log.replication.factor": "3",
        "transaction.state.log.min.isr": "2",
        "offsets.topic.replication.factor": "3",
    }
    settings = {"transaction_state_log_min_isr": "2"}
    with (
        tempfile.TemporaryDirectory(prefix="transactions-") as directory,
        Cluster(Path(directory) / "echoless", settings) as ours,
        ApacheKafkaCluster(Path(directory) / "kafka", kafka_settings, jvm=KAFKA_JVM) as theirs,
    ):
        ours.start()
        theirs.start()
        pids = [one.process.pid for one in ours.brokers.values()]
        their_pids = [one.process.pid for one in theirs.nodes]
        yield [
            Brokers("Echoless", ours.bootstrap, pids),
            Brokers(f"Kafka {KafkaVersion.V3_9.value}", theirs.bootstrap, their_pids),
        ]


class Load(NamedTuple):
    """The work of producers: `kind` as in `benchmarks.transaction_load`, on the topic of so many partitions."""

    kind: str
    partitions: int = 1
    producers: int = 1

    @property
    def name(self) -> str:
        producers = "" if self.kind == "latency" else f", {self.producers} producers"
        return f"{self.kind}, {self.partitions} partitions{producers}"


def _topic(partitions: int) -> str:
    return f"t-{partitions}"


def create(brokers: Brokers, partitions: int) -> None:
    """Creates the topic of so many partitions, with a replica on each broker; of three, two have to be in sync."""
    topic, replicas = _topic(partitions), len(brokers.pids)
    admin = AdminClient({"bootstrap.servers": brokers.bootstrap, "log_level": 0})
    admin.list_topics(timeout=_TIMEOUT_S)
    config = {"min.insync.replicas": str(min(2, replicas))}
    wanted = NewTopic(topic, partitions, replicas, config=config)
    admin.create_topics([wanted], operation_timeout=_TIMEOUT_S)[topic].result(_TIMEOUT_S)
    time.sleep(1)  # Kafka's brokers learn of it a little later


def load(brokers: Brokers, one_load: Load, seconds: float) -> Mapping[str, float]:
    """One run: transactions/s, and microseconds of the brokers' processor time for each; percentiles if it measures them."""
    kind, partitions, producers = one_load
    count = -(-producers // _PRODUCERS_PER_PROCESS)
    command = [sys.executable, "-m", "benchmarks.transaction_load", kind]
    command += ["--bootstrap", brokers.bootstrap, "--topic", _topic(partitions)]
    command += ["--partitions", str(partitions), "--producers", str(producers // count)]
    command += ["--seconds", str(seconds)]
    with ExitStack() as stack:
        running = [
            subprocess.Popen(
                [*command, "--name", f"load-{next(_NAMES)}"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            for _ in range(count)
        ]
        for one in running:
            stack.callback(one.kill)
        for one in running:
            assert one.stdout is not None
            assert one.stdout.readline() == "ready\n", f"the load for {brokers.name} has failed"
        before = brokers.processor_s()
        for one in running:
            assert one.stdin is not None
            one.stdin.write("go\n")
            one.stdin.flush()
        found = [json.loads(one.communicate()[0]) for one in running]
        spent = brokers.processor_s() - before
    transactions = sum(one.pop("transactions") for one in found)
    cost_us = 1e6 * spent / transactions if transactions else float("nan")
    return {"per_s": transactions / seconds, "cost_us": cost_us, **found[0]}


Row = tuple[str, list[Mapping[str, float]]]
"""A load, and the medians of each kind of broker, by figure."""


def throughput(found: Sequence[Brokers], arguments: argparse.Namespace) -> Iterator[Row]:
    """Transactions of all sizes and numbers of producers, each beside the same records without transactions."""
    for partitions, producers in itertools.product(arguments.partitions, arguments.producers):
        for kind in ("transactions", "idempotent"):
            yield _measured(Load(kind, partitions, producers), found, arguments)


def latency(found: Sequence[Brokers], arguments: argparse.Namespace) -> Iterator[Row]:
    """The time from a record to a reader of committed records."""
    for partitions in arguments.partitions:
        yield _measured(Load("latency", partitions), found, arguments)


def _measured(one_load: Load, found: Sequence[Brokers], arguments: argparse.Namespace) -> Row:
    measures = [partial(load, one, one_load, arguments.seconds) for one in found]
    ours, *others = several_in_turn(arguments.rounds, measures)
    for brokers, theirs in zip(found[1:], others, strict=True):
        for figure, pair in pairs_of(ours, theirs).items():
            print_pair(f"{one_load.name}: {figure}", pair, second=brokers.name)
    medians: list[Mapping[str, float]] = [
        {name: statistics.median(one[name] for one in rounds) for name in rounds[0]}
        for rounds in (ours, *others)
    ]
    return one_load.name, medians


def table(found: Sequence[Brokers], rows: Sequence[Row]) -> str:
    """The medians as a table of Markdown, with the ratio of Echoless to each Kafka."""
    head = [f"{one.name} | ratio" if place else one.name for place, one in enumerate(found)]
    lines = [f"| what | {' | '.join(head)} |", "|---" * (2 * len(found)) + "|"]
    for what, medians in rows:
        for name in medians[0]:
            cells = [f"{medians[0][name]:.4g}"]
            for theirs in medians[1:]:
                cells += [f"{theirs[name]:.4g}", f"{medians[0][name] / theirs[name]:.2f}"]
            lines.append(f"| {what}: {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def run(brokers: int, versions: Sequence[KafkaVersion], arguments: argparse.Namespace) -> None:
    """All that was asked for, with so many brokers of each kind."""
    with (single if brokers == 1 else three)(versions) as found:
        for partitions, one in itertools.product(arguments.partitions, found):
            create(one, partitions)
        for one in found:  # the virtual machine compiles what is hot
            warm_up = Load("transactions", arguments.partitions[0], 10)
            load(one, warm_up, arguments.warm_up)
        rows = [row for name in arguments.what for row in MEASUREMENTS[name](found, arguments)]
        print(f"\n{brokers} brokers\n\n{table(found, rows)}\n", flush=True)


MEASUREMENTS: Final = {"throughput": throughput, "latency": latency}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", nargs="*", default=list(MEASUREMENTS))
    parser.add_argument("--brokers", type=int, nargs="+", default=[1, 3], choices=[1, 3])
    parser.add_argument("--partitions", type=int, nargs="+", default=[1, 10, 100])
    parser.add_argument("--producers", type=int, nargs="+", default=[1, 50])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=3)
    parser.add_argument("--warm-up", type=float, default=10)
    parser.add_argument("--versions", nargs="+", default=[one.value for one in KafkaVersion])
    arguments = parser.parse_args()
    versions = [one for one in KafkaVersion if one.is_there and one.value in arguments.versions]
    keep_compiled_code()
    compile_tree(SOURCES)
    for brokers in arguments.brokers:
        run(brokers, versions, arguments)


if __name__ == "__main__":
    main()
