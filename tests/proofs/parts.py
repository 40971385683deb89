"""The long proofs, each run for a given time from a seed: the work done, and the problems found."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from rich.console import Console

from tests.proofs.verdict import Verdict
from tests.support.apache_kafka import ApacheKafka

if TYPE_CHECKING:
    from tests.simulation.history import Kind

_JOBS: Final = 2
_HISTORIES_AT_ONCE: Final = 300
_GROUP_HISTORIES_AT_ONCE: Final = 120
_PAYLOADS_AT_ONCE: Final = 250
_SHARE_OF_SEARCHES: Final = 0.8
"""The rest is for the mutants."""
_CONNECTIONS: Final = 5
_STATES_MAX: Final = 3_000_000
"""States of one search: a gigabyte."""
_KILLS: Final = 10
_RUNS_OF_APPLICATIONS: Final = 7
_SECONDS_OF_A_KILL: Final = 15.0
_SPARK_RECORDS: Final = 240_000
_OPTION_SETS_AT_ONCE: Final = 10
_LETTERS: Final = "abcdefghijklmnopqrstuvwxyz0123456789-_."
_CONSOLE: Final = Console(width=120)


@dataclass(slots=True)
class Outcome:
    """The outcome of one proof; figures of several runs are added."""

    figures: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)

    def add(self, verdict: Verdict) -> None:
        verdict.print(_CONSOLE)
        self.figures.update(verdict.figures())
        self.problems += [f"{verdict.title}: {failure}" for failure in verdict.failures]


_OF_RECORDS: Final = {
    "batches acknowledged": "batches acknowledged",
    "of these sent again": "batches sent again",
}


def simulation(seconds: float, seed: int) -> Outcome:
    """Random histories of a whole cluster in one process, with virtual time."""
    from tests.simulation.history import Kind

    return _simulated(seconds, seed, Kind.RECORDS, _OF_RECORDS)


def compacted_simulation(seconds: float, seed: int) -> Outcome:
    """Random histories of compacted topics in such a cluster."""
    from tests.simulation.history import Kind

    names = {**_OF_RECORDS, "records cleaned away": "records cleaned away"}
    return _simulated(seconds, seed, Kind.COMPACTED, names)


def group_simulation(seconds: float, seed: int) -> Outcome:
    """Random histories of consumer groups in such a cluster."""
    from tests.simulation.groups.seen import Seen
    from tests.simulation.history import Kind

    return _simulated(seconds, seed, Kind.GROUPS, {name: name for name in Seen.COUNTED})


def transaction_simulation(seconds: float, seed: int) -> Outcome:
    """Random histories of transactions in such a cluster; over many of them everything that is expected has to happen."""
    from tests.simulation.history import Kind
    from tests.simulation.transactions import sometimes

    names = {
        "transactions committed": "transactions committed",
        "transactions aborted": "transactions aborted",
        "of unknown outcome": "transactions committed or aborted",
        "histories that end with one machine broken": "one machine is left broken",
    }
    expected = {name: name for name in sometimes.EXPECTED}
    outcome = _simulated(seconds, seed, Kind.TRANSACTIONS, {**names, **expected})
    figures = outcome.figures
    if figures["histories"] >= sometimes.LONG_ENOUGH:
        outcome.problems += [f"never happened: {name}" for name in sometimes.missing(figures)]
    for name in expected:
        figures["different events that were expected, and happened"] += bool(figures.pop(name, 0))
    return outcome


def _simulated(seconds: float, seed: int, kind: Kind, names: Mapping[str, str]) -> Outcome:
    """Play histories; `names`: the figures of the page, and what a verdict calls them."""
    from tests.simulation.many import line, play_many

    outcome = Outcome()
    for number in _while(seconds):
        first = seed + number * _HISTORIES_AT_ONCE
        verdict = play_many(range(first, first + _HISTORIES_AT_ONCE), _JOBS, kind=kind)
        counts = verdict.counts
        outcome.problems += map(line, verdict.failures)
        outcome.figures.update(
            {
                "histories": verdict.histories,
                "histories with a broken promise": len(verdict.failures),
                "faults": sum(n for name, n in counts.items() if name.startswith("fault:")),
                **{shown: counts[name] for shown, name in names.items()},
            }
        )
    return outcome


def oracle(seconds: float, seed: int) -> Outcome:
    """The same random produce requests to Apache Kafka and to Echoless, every answer compared."""
    return _compared(seconds, seed, "producers", _HISTORIES_AT_ONCE)


def group_oracle(seconds: float, seed: int) -> Outcome:
    """The same of classic groups."""
    return _compared(seconds, seed, "groups", _GROUP_HISTORIES_AT_ONCE)


def consumer_oracle(seconds: float, seed: int) -> Outcome:
    """The same of the consumer protocol."""
    return _compared(seconds, seed, "consumers", _GROUP_HISTORIES_AT_ONCE)


def session_oracle(seconds: float, seed: int) -> Outcome:
    """The same of fetch sessions."""
    return _compared(seconds, seed, "sessions", _GROUP_HISTORIES_AT_ONCE)


def transaction_oracle(seconds: float, seed: int) -> Outcome:
    """The same of transactions, half of the time beside Kafka 3.9 and half beside 4.2."""
    outcome = _compared(seconds / 2, seed, "transactions", _GROUP_HISTORIES_AT_ONCE)
    other = _compared(seconds / 2, seed, "transactions-4", _GROUP_HISTORIES_AT_ONCE)
    outcome.figures.update(other.figures)
    outcome.problems += other.problems
    return outcome


def _compared(seconds: float, seed: int, name: str, histories_at_once: int) -> Outcome:
    """Play histories of one script of the oracle."""
    from tests.oracle.contest import contest
    from tests.oracle.report import Report
    from tests.oracle.scripts import SCRIPTS

    outcome, report = Outcome(), Report()
    with contest(SCRIPTS[name]) as both:
        for number in _while(seconds):
            first = number * histories_at_once
            report.include(both.run(range(first, first + histories_at_once), [seed]))
    outcome.figures.update(report.figures)
    outcome.figures["answers that differ for a named reason"] = report.counts.total()
    outcome.figures["histories with a difference without a name"] = len(report.failures)
    outcome.problems += map(str, report.failures)
    return outcome


def nemesis(seconds: float, seed: int) -> Outcome:
    """Three brokers and ZooKeeper: killed, paused, cut off, out of disk, under real producers.

    Half of the time every port is open, half of it clients and brokers log in or show certificates.
    """
    from tests.nemesis.run import Options, run
    from tests.support.cluster_security import NativeDoor

    outcome = Outcome()
    doors = list(NativeDoor)
    for security in (None, doors[seed % len(doors)]):
        with _directory("nemesis", outcome) as directory:
            options = Options(seconds=seconds / 2, seed=seed, security=security)
            outcome.add(run(directory, options))
    return outcome


def soak(seconds: float, seed: int) -> Outcome:
    """Six real clients under fault rules, half of the time with one broker, half with three."""
    from tests.soak.run import Options, run

    outcome = Outcome()
    for brokers in (1, 3):
        outcome.add(run(Options(seconds=seconds / 2, seed=seed, brokers=brokers)))
    return outcome


def spark(seconds: float, seed: int) -> Outcome:
    """The Spark sink, while tasks, workers, executors, drivers and brokers are killed."""
    from tests.spark_proofs.plan import SHORT_PLAN, Kind
    from tests.spark_proofs.query import DATA_SOURCE, FOREACH_BATCH
    from tests.spark_proofs.run import RunOptions, run

    ways = (
        (DATA_SOURCE, "echoless", "s3"),
        (FOREACH_BATCH, "apache-kafka", "checkpoint"),
        (DATA_SOURCE, "secured-cluster", "faulty-s3"),
        (FOREACH_BATCH, "apache-kafka-4", "azure"),
    )
    outcome = Outcome()
    for number in _while(seconds):
        sink, target, ledger = ways[number % len(ways)]
        options = RunOptions(
            sink=sink,
            target=target,
            ledger=ledger,
            seed=seed + number,
            records=_SPARK_RECORDS,
            batches=12,
            counts={**SHORT_PLAN, Kind.KILL_DRIVER: 2, Kind.SPLIT_BRAIN: 1},
        )
        with _directory("spark-proofs", outcome) as directory:
            outcome.add(run(directory, options))
    return outcome


def restarts(seconds: float, seed: int) -> Outcome:
    """Streams from Spark's Kafka source that die and are restarted: one or two topics of any names, with 1 to 12 partitions each."""
    import random

    from echoless.pipeline.kafka_connector import connector_settings
    from echoless.pipeline.session import open_session
    from tests.pipeline.exactly_once.kafka_restarts import Restarts, Source
    from tests.pipeline.exactly_once.text_stream import WAYS
    from tests.support.echoless import Echoless

    outcome, dice = Outcome(), random.Random(seed)
    settings = {"spark.driver.memory": "1g", **connector_settings()}
    spark = open_session("restarts", master="local[2]", settings=settings)
    with _directory("restarts", outcome) as directory, _apache_kafka(directory) as kafka:
        broker = Echoless(directory)
        broker.start()
        servers = {"Echoless": broker, "Kafka": kafka}
        for number in _while(seconds):
            name = "".join(dice.choices(_LETTERS, k=dice.randint(1, 20)))
            topics = (f"{number}-{name}", f"{number}-{name[::-1]}-too")[: dice.randint(1, 2)]
            # Up to four partitions in all are numbered anew.
            source = Source(
                topics, dice.choice((1, 2, 2, 3, 3, 4, 4, *range(5, 13))), f"out-{number}"
            )
            server, way = dice.choice(sorted(servers)), dice.choice(WAYS)
            place = directory / str(number)
            place.mkdir()
            problem = Restarts(spark, servers[server].kafka_address, place, way, source).play()
            outcome.figures[f"streams by {way} into {server}"] += 1
            outcome.figures["of these, numbered anew by a restart"] += source.is_numbered_anew
            outcome.problems += [] if problem is None else [f"{server}: {problem}"]
        broker.kill()
    spark.stop()
    return outcome


def siege(seconds: float, seed: int) -> Outcome:
    """Every hostile client at once, beside a producer and a reader that behave."""
    from tests.hostile.siege.attackers import ATTACKERS
    from tests.hostile.siege.run import Options, run

    verdict = run(Options(names=list(ATTACKERS), seconds=seconds, seed=seed))
    print(verdict.text(), flush=True)
    outcome = Outcome(problems=verdict.problems)
    outcome.figures["attackers"] = len(verdict.tries)
    outcome.figures["tries"] = sum(sum(tries.values()) for tries in verdict.tries.values())
    if verdict.siege is not None:
        outcome.figures["batches of the good producer"] = verdict.siege.batches
        outcome.figures["its longest wait, in ms"] = round(verdict.siege.wait_max_s * 1000)
        outcome.figures["longest turn of the event loop, in ms"] = round(
            verdict.siege.held_s * 1000
        )
    return outcome


def groups(seconds: float, seed: int) -> Outcome:
    """Groups of real clients whose members and coordinators are killed and paused, in two casts."""
    from tests.group_members.casts import CASTS, SHORT
    from tests.group_members.run import Options, Run

    outcome = Outcome()
    others = [name for name in CASTS if name not in SHORT]
    for number, names in enumerate((SHORT, others)):
        casts = {name: CASTS[name] for name in names}
        options = Options(casts=casts, seed=seed + number, seconds=seconds / 2)
        with _directory("groups", outcome) as directory:
            outcome.add(Run(options, directory).run())
    return outcome


def payloads(seconds: float, seed: int) -> Outcome:
    """Random compressed payloads beside Apache Kafka; what is stored is read by three families of consumers."""
    from tests.compatibility.payloads.contest import contest
    from tests.support.echoless import Echoless

    outcome = Outcome()
    with _directory("payloads", outcome) as directory, _apache_kafka(directory) as kafka:
        broker = Echoless(directory / "echoless")
        broker.start()
        try:
            for number in _while(seconds):
                numbers = range(number * _PAYLOADS_AT_ONCE, (number + 1) * _PAYLOADS_AT_ONCE)
                addresses = broker.kafka_address, kafka.address
                found = asyncio.run(contest(*addresses, seed, numbers, directory))
                outcome.figures.update(found.counts)
                outcome.problems += found.problems
        finally:
            broker.kill()
    return outcome


def compacted_readers(seconds: float, seed: int) -> Outcome:
    """Compacted logs of random shapes, read to the end by eight families of clients, here and in Apache Kafka."""
    from tests.compatibility.compacted.contest import FAMILIES, KAFKA_SETTINGS, contest

    outcome = Outcome()
    with (
        _directory("compacted-readers", outcome) as directory,
        _apache_kafka(directory, KAFKA_SETTINGS) as kafka,
    ):
        for number in _while(seconds):
            place = directory / str(number)
            place.mkdir()
            found = asyncio.run(contest(kafka, seed, number, place, readers_of_kafka=FAMILIES))
            outcome.figures.update(found.counts)
            outcome.problems += found.problems
    return outcome


def transactions(seconds: float, _seed: int) -> Outcome:
    """Every order of events around two transactional ids, within bounds; and the mutants, each of which has to be found."""
    from tests.coordinators.transactions.exploration.connections import ConnectionBounds, explore
    from tests.coordinators.transactions.exploration.mutants import MUTANTS, mutated
    from tests.coordinators.transactions.exploration.search import Search
    from tests.coordinators.transactions.exploration.searches import LARGE, MEDIUM

    outcome = Outcome()
    for name, bounds in LARGE.items():
        found = Search(bounds).run(_STATES_MAX, seconds * _SHARE_OF_SEARCHES / len(LARGE))
        outcome.figures["searches that ended"] += found.is_complete
        outcome.figures["states"] += found.states
        outcome.figures["different moves of one id"] += found.moves
        if found.violation is not None:
            outcome.problems.append(f"{name}: {found.violation}")
    outcome.figures["states of connections"] = explore(ConnectionBounds(_CONNECTIONS, moves=2))
    for name in MUTANTS:
        with mutated(name):
            is_found = any(Search(bounds).run().violation for bounds in MEDIUM.values())
        outcome.figures["mutants found"] += is_found
        if not is_found:
            outcome.problems.append(f"nothing found the mutant: {name}")
    return outcome


def models(seconds: float, _seed: int) -> Outcome:
    """The models of transactions, each rule and its absence; those that take minutes as long as there is time."""
    from tests.models.checks import CHECKS
    from tests.models.spin import ModelError, run

    outcome, end = Outcome(), time.monotonic() + seconds
    for check in sorted(CHECKS, key=lambda one: not one.is_quick):
        if not check.is_quick and time.monotonic() > end:
            outcome.figures["checks for which there was no time"] += 1
            continue
        try:
            found = run(check)
        except ModelError as error:
            outcome.problems.append(str(error))
            continue
        outcome.figures["rules that hold" if check.holds else "rules that are needed"] += 1
        outcome.figures["states"] += found.states
        if check.holds == bool(found.violation):
            outcome.problems.append(f"{check.name}: {found.violation or 'nothing is violated'}")
    return outcome


def applications(seconds: float, seed: int) -> Outcome:
    """Applications with exactly-once settings, each killed up to ten times, and brokers below them: one that comes back, and three."""
    import random

    from tests.applications import killed
    from tests.applications.servers import Servers, running
    from tests.applications.tools import JARS, STREAMS_4_JARS

    kills = min(_KILLS, max(1, int(seconds / _RUNS_OF_APPLICATIONS / _SECONDS_OF_A_KILL)))

    def flink(naming: str) -> Callable[[Servers, Path], Counter[str]]:
        dice = random.Random(seed)
        return lambda servers, directory: killed.copy_with_flink(
            servers, directory, naming, kills, dice
        )

    def streams(jars: Path) -> Callable[[Servers, Path], Counter[str]]:
        return lambda servers, directory: killed.count_words(servers, directory, jars, kills)

    def connect(servers: Servers, directory: Path) -> Counter[str]:
        return killed.copy_with_connect(servers, directory, kills)

    outcome = Outcome()
    for name, brokers, play in (
        ("Kafka Streams 3.9", 1, streams(JARS)),
        ("Kafka Streams 3.9", 3, streams(JARS)),
        ("Kafka Streams 4.2", 1, streams(STREAMS_4_JARS)),
        ("Kafka Streams 4.2", 3, streams(STREAMS_4_JARS)),
        ("Flink, new ids", 1, flink("INCREMENTING")),
        ("Flink, pooled ids", 3, flink("POOLING")),
        ("Kafka Connect", 3, connect),
    ):
        with _directory("applications", outcome) as directory:
            try:
                with running(directory / "brokers", brokers) as servers:
                    figures = play(servers, directory)
            except AssertionError as error:
                outcome.problems.append(f"{name}, {brokers} brokers: {error}")
                continue
        print(f"{name}, {brokers} brokers: {dict(figures)}", flush=True)
        outcome.figures.update(figures)
        outcome.figures["runs"] += 1
    return outcome


def reader(seconds: float, seed: int) -> Outcome:
    """Random options to the Spark reader and to Spark's own Kafka source, at Echoless and at Apache Kafka."""
    from echoless.pipeline.kafka_connector import connector_settings
    from echoless.pipeline.session import open_session
    from tests.pipeline.reading.option_sets import Compared
    from tests.support.echoless import Echoless

    outcome = Outcome()
    settings = {"spark.driver.memory": "1g", **connector_settings()}
    spark = open_session("reader", master="local[2]", settings=settings)
    with _directory("reader", outcome) as directory, _apache_kafka(directory) as kafka:
        broker = Echoless(directory)
        broker.start()
        servers = {"Echoless": broker.kafka_address, "Apache Kafka": kafka.kafka_address}
        for number, (name, address) in enumerate(servers.items()):
            with Compared(spark, address) as compared:
                for round_number in _while(seconds / 2):
                    drawn = seed + number + 2 * round_number
                    outcome.problems += compared.run(drawn, _OPTION_SETS_AT_ONCE)
            outcome.figures.update(
                {f"{name}: {what}": count for what, count in compared.figures.items()}
            )
        broker.kill()
    spark.stop()
    return outcome


PARTS: Final[dict[str, tuple[float, Callable[[float, int], Outcome]]]] = {
    "simulation": (0.1, simulation),
    "compacted-simulation": (0.05, compacted_simulation),
    "group-simulation": (0.05, group_simulation),
    "transaction-simulation": (0.1, transaction_simulation),
    "oracle": (0.08, oracle),
    "group-oracle": (0.05, group_oracle),
    "consumer-oracle": (0.05, consumer_oracle),
    "payloads": (0.05, payloads),
    "compacted-readers": (0.05, compacted_readers),
    "session-oracle": (0.02, session_oracle),
    "transaction-oracle": (0.04, transaction_oracle),
    "groups": (0.05, groups),
    "nemesis": (0.1, nemesis),
    "soak": (0.08, soak),
    "spark": (0.15, spark),
    "restarts": (0.04, restarts),
    "reader": (0.05, reader),
    "transactions": (0.1, transactions),
    "models": (0.02, models),
    "siege": (0.08, siege),
    "applications": (0.1, applications),
}
"""By name: the share of the time, and the proof."""


def _while(seconds: float) -> Iterator[int]:
    """Count from 0 until the time is over; 0 always comes."""
    end, number = time.monotonic() + seconds, 0
    while number == 0 or time.monotonic() < end:
        yield number
        number += 1


@contextlib.contextmanager
def _apache_kafka(
    directory: Path, settings: Mapping[str, str] | None = None
) -> Iterator[ApacheKafka]:
    kafka = ApacheKafka(directory / "kafka", settings)
    kafka.start()
    try:
        yield kafka
    finally:
        kafka.kill()


@contextlib.contextmanager
def _directory(name: str, outcome: Outcome) -> Iterator[Path]:
    """Make a directory for one run; it is kept, and named, if the run finds something wrong."""
    path, before = Path(tempfile.mkdtemp(prefix=f"{name}-")), len(outcome.problems)
    yield path
    if len(outcome.problems) > before:
        outcome.problems.append(f"every log is in {path}")
    else:
        shutil.rmtree(path)
