"""Real transactions while brokers are killed, and their history before the checker."""

from __future__ import annotations

import logging
import pickle
import random
import sys
import threading
import time
import traceback
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Protocol

from confluent_kafka import IsolationLevel, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec
from rich.table import Table

from tests.nemesis.replica_logs import first_difference, read_batches
from tests.proofs import verdict
from tests.support.cluster import Cluster
from tests.support.echoless import Echoless
from tests.transactions.history.checker import check
from tests.transactions.history.clients import Copier, Reader, Writer, read_to_the_ends
from tests.transactions.history.events import History, Outcome
from tests.transactions.history.our_clients import OurCopier, OurWriter
from tests.transactions.history.stored import read_stored
from tests.transactions.history.writing import (
    CALL_S,
    COPIES,
    GIVE_UP_S,
    GROUP,
    INPUT,
    PLACES,
    WRITTEN,
    Client,
    consumer_of,
    until_answered,
)

logger = logging.getLogger(__name__)

WRITERS: Final = 4
"""Half of them are librdkafka's, half our own."""
READERS: Final = 2
SETTINGS: Final = {"zookeeper_session_timeout_ms": "6000"}
_QUIET_S: Final = (1.5, 4.0)
_DOWN_S: Final = (0.0, 1.5)
_ALL_SHARE: Final = 0.25
"""Kills of all brokers of a cluster among all kills."""
_KILLS_LEAST: Final = 3
_ENDS_LEAST: Final = {Outcome.OK: 21, Outcome.FAILED: 6}
_COPYING_LEAST: Final = 6
_LATEST_S: Final = 240.0
"""Time for which a run on a slow machine goes on beyond its own, until so much was done."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """One run."""

    seconds: float = 40.0
    seed: int = 1
    brokers: int = 3
    copier: str = "librdkafka"
    """The client that copies: librdkafka or echoless."""
    settings: Mapping[str, str] = field(default_factory=dict)


class Servers(Protocol):
    """Brokers that can be killed; `Cluster` is one."""

    brokers: dict[int, Echoless]

    @property
    def bootstrap(self) -> str: ...
    def start(self) -> None: ...
    def kill(self, broker_id: int) -> None: ...
    def start_broker(self, broker_id: int) -> None: ...
    def stop(self, broker_id: int) -> int: ...
    def close(self) -> None: ...


class OneBroker:
    """A single broker, with the manners of a cluster."""

    def __init__(self, directory: Path, settings: Mapping[str, str]) -> None:
        self.brokers = {1: Echoless(directory, settings)}

    @property
    def bootstrap(self) -> str:
        """Its address, which it keeps."""
        return self.brokers[1].kafka_address

    def start(self) -> None:
        self.brokers[1].start()

    def kill(self, broker_id: int) -> None:
        """Sends SIGKILL."""
        self.brokers[broker_id].kill()

    def start_broker(self, broker_id: int) -> None:
        self.brokers[broker_id].start()

    def stop(self, broker_id: int) -> int:
        """Sends SIGTERM; returns the exit status."""
        return self.brokers[broker_id].terminate()

    def close(self) -> None:
        self.brokers[1].kill()


@dataclass(slots=True, kw_only=True)
class Verdict(verdict.Verdict):
    """Counts of what was done, and every broken promise."""

    counts: Counter[str] = field(default_factory=Counter)
    broken: list[str] = field(default_factory=list)

    def figures(self) -> dict[str, int]:
        return dict(self.counts)

    def _failures(self) -> list[str]:
        return self.broken[:20]

    def _tables(self) -> Iterator[Table]:
        table = verdict.two_columns(self.title)
        verdict.counted(table, self.counts)
        yield table


def run(directory: Path, options: Options) -> Verdict:
    """Runs, and judges. The directory keeps `history.pickle`, a `History`."""
    settings = {**options.settings}
    if options.brokers == 1:
        servers: Servers = OneBroker(directory / "broker-1", settings)
    else:
        servers = Cluster(directory, {**SETTINGS, **settings}, brokers=options.brokers)
    try:
        servers.start()
        _create_topics(servers.bootstrap, options.brokers)
        return _Run(servers, directory, options).run()
    finally:
        servers.close()


def _create_topics(bootstrap: str, replicas: int) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    topics = [NewTopic("t", len(WRITTEN), replicas), NewTopic(COPIES[0], 1, replicas)]
    for made in admin.create_topics(topics).values():
        made.result(GIVE_UP_S)


class _Run:
    def __init__(self, servers: Servers, directory: Path, options: Options) -> None:
        self._servers = servers
        self._directory = directory
        self._options = options
        self._dice = random.Random(options.seed)
        stopping, self._reading = threading.Event(), threading.Event()
        self._stopping = stopping
        known = (servers.bootstrap, options.seed, stopping)
        self._writers: list[Writer | OurWriter] = [
            (OurWriter if n % 2 else Writer)(f"writer-{n}", *known) for n in range(WRITERS)
        ]
        copier = OurCopier if options.copier == "echoless" else Copier
        self._writers.append(copier("copier", *known))
        self._readers = [
            Reader(f"reader-{n}", servers.bootstrap, self._reading) for n in range(READERS)
        ]
        self._verdict = Verdict(title=f"transactions, {options.brokers} broker(s) killed")

    def run(self) -> Verdict:
        clients: list[Client] = [*self._writers, *self._readers]
        for client in clients:
            client.start()
        self._kill(time.monotonic() + self._options.seconds)
        self._stopping.set()
        self._join(self._writers)
        history = History(transactions=[t for w in self._writers for t in w.transactions])
        try:
            self._await_stable_ends()
        except AssertionError as error:
            self._verdict.problems.append(str(error))
        try:
            self._look_at_the_end(history)
        except AssertionError as error:
            self._verdict.problems.append(str(error))
        self._end_readers()
        history.readers = {reader.name: reader.seen for reader in self._readers}
        (self._directory / "history.pickle").write_bytes(pickle.dumps(history))
        self._judge(history)
        return self._verdict

    def _look_at_the_end(self, history: History) -> None:
        history.final = read_to_the_ends(self._servers.bootstrap, PLACES)
        history.inputs = {INPUT: self._committed_input()}
        self._await_readers(history)
        self._end_readers()
        history.log = self._read_logs()

    def _kill(self, until: float) -> None:
        while (now := time.monotonic()) < until or (
            now < until + _LATEST_S and not self._has_done_enough()
        ):
            time.sleep(self._dice.uniform(*_QUIET_S))
            chosen = [self._dice.choice(list(self._servers.brokers))]
            if self._dice.random() < _ALL_SHARE:
                chosen = list(self._servers.brokers)
            for broker_id in chosen:
                self._servers.kill(broker_id)
                self._verdict.counts["brokers killed"] += 1
            logger.info("killed %s", chosen)
            time.sleep(self._dice.uniform(*_DOWN_S))
            starting = [
                threading.Thread(target=self._servers.start_broker, args=[one]) for one in chosen
            ]
            for thread in starting:
                thread.start()
            for thread in starting:
                thread.join()
            logger.info("started %s", chosen)

    def _has_done_enough(self) -> bool:
        """Whether there is a history to judge."""
        each = [Counter(one.outcome for one in writer.transactions) for writer in self._writers]
        ended = sum(each, Counter[Outcome]())
        return (
            self._verdict.counts["brokers killed"] >= _KILLS_LEAST
            and all(ended[outcome] >= least for outcome, least in _ENDS_LEAST.items())
            and each[-1][Outcome.OK] >= _COPYING_LEAST
        )

    def _join(self, clients: Iterable[Client]) -> None:
        until = time.monotonic() + 2 * GIVE_UP_S
        for client in clients:
            client.join(max(0.0, until - time.monotonic()))
            if client.is_alive():
                self._verdict.problems.append(f"{client.name} does not end: {_stack_of(client)}")

    def _end_readers(self) -> None:
        self._reading.set()
        self._join(self._readers)

    def _await_stable_ends(self) -> None:
        """Every transaction ends: the last stable offsets reach the high watermarks."""
        admin = AdminClient({"bootstrap.servers": self._servers.bootstrap, "log_level": 0})
        until = time.monotonic() + GIVE_UP_S
        while True:
            ends = until_answered(lambda: _ends(admin, IsolationLevel.READ_UNCOMMITTED))
            stable = until_answered(lambda: _ends(admin, IsolationLevel.READ_COMMITTED))
            if ends == stable:
                return
            assert time.monotonic() < until, f"open transactions stay: {stable}, ends {ends}"

    def _committed_input(self) -> int:
        consumer = consumer_of(self._servers.bootstrap, GROUP)
        offset = until_answered(
            lambda: consumer.committed([TopicPartition(*INPUT)], CALL_S)[0]
        ).offset
        consumer.close()
        return max(offset, 0)

    def _await_readers(self, history: History) -> None:
        ends = {place: rows[-1][0] for place, rows in history.final.items() if rows}
        until = time.monotonic() + GIVE_UP_S
        for reader in self._readers:
            while any(reader.last.get(place, -1) < end for place, end in ends.items()):
                assert time.monotonic() < until, f"{reader.name} stays at {reader.last}, {ends}"
                self._reading.wait(0.05)

    def _read_logs(self) -> dict[Any, Any]:
        """The logs of the first broker, once all brokers have stopped and their files are equal."""
        if isinstance(self._servers, Cluster):
            self._servers.wait_until(self._servers.is_healed, "the cluster is healed")
        for broker_id in self._servers.brokers:
            self._servers.stop(broker_id)
        replicas = {one: broker.data_dir for one, broker in self._servers.brokers.items()}
        for place in PLACES:
            if difference := first_difference(replicas, *place):
                self._verdict.problems.append(f"replicas of {place} differ: {difference}")
        return {place: read_stored(read_batches(replicas[1], *place)) for place in PLACES}

    def _judge(self, history: History) -> None:
        judged, counts = check(history), self._verdict.counts
        self._verdict.broken = [f"{anomaly.name}: {words}" for anomaly, words in judged.broken]
        for client in (*self._writers, *self._readers):
            self._verdict.problems += client.problems
        for writer in self._writers:
            counts.update(writer.counts)
        for one in history.transactions:
            counts[f"transactions {one.outcome.value}"] += 1
            counts["records sent"] += len(one.sent)
        counts["records visible"] = sum(map(len, history.final.values()))
        counts["copies visible"] = len(history.final.get(COPIES, ()))
        counts.update(f"legal cycles {cycle.kind}" for cycle in judged.legal_cycles)


def _ends(admin: AdminClient, isolation: IsolationLevel) -> dict[tuple[str, int], int]:
    asked = {TopicPartition(*place): OffsetSpec.latest() for place in PLACES}
    answers = admin.list_offsets(asked, isolation_level=isolation, request_timeout=CALL_S)
    return {(one.topic, one.partition): made.result().offset for one, made in answers.items()}


def _stack_of(thread: threading.Thread) -> str:
    """The line of each call that it is in, the innermost last."""
    frame = sys._current_frames().get(thread.ident or 0)
    calls = traceback.extract_stack(frame)
    return ", ".join(f"{Path(one.filename).name}:{one.lineno} {one.line}" for one in calls[-4:])
