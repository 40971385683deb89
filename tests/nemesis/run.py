"""One run: a cluster, clients at full speed, a nemesis; then everything heals and is judged.

The order of the end: no further fault; the producers finish their records; every replica returns to
every ISR; the reader reads to the ends; the brokers stop; their logs are compared and judged from
their files.
"""

from __future__ import annotations

import contextlib
import itertools
import subprocess
import sys
import threading
from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from tests.compatibility.programs import JAVA, LIBRDKAFKA, REPOSITORY, Program
from tests.nemesis.client_processes import ReaderProcess, Writer
from tests.nemesis.faults import CUTS, Faults
from tests.nemesis.idle_topic import IdleTopic
from tests.nemesis.network import Network, reason_unavailable
from tests.nemesis.plan import Kind, make_plan
from tests.nemesis.replica_logs import first_difference, read_batches, read_numbers
from tests.nemesis.small_disk import DiskError, SmallDisk
from tests.nemesis.verdict import Verdict
from tests.nemesis.watch import Watch
from tests.proofs.judge import NUMBERS_PER_PRODUCER, Evidence, judge
from tests.support.cluster import ZOOKEEPER, Cluster
from tests.support.cluster_security import ClusterSecurity, NativeDoor

TOPICS: Final = {"two-in-sync": 2, "one-in-sync": 1}
"""By name: min.insync.replicas. With one, a single survivor continues to acknowledge."""
WRITERS: Final = (
    (JAVA[0], "two-in-sync"),
    (JAVA[-1], "one-in-sync"),
    (LIBRDKAFKA, "two-in-sync"),
    (LIBRDKAFKA, "one-in-sync"),
)
"""In the order of their starts. Those in Java need seconds of a processor for their first log-in over TLS, of which
producers at full speed would leave them a tenth."""
PARTITIONS: Final = 4
SMALL_DISK_ID: Final = 3
_BROKER_HOSTS: Final = ("broker-1", "broker-2", "broker-3")
SESSION_TIMEOUT_S: Final = 3.0
HEAL_TIMEOUT_S: Final = 90.0
SETTINGS: Final = {
    "zookeeper_session_timeout_ms": str(int(SESSION_TIMEOUT_S * 1000)),
    "replica_lag_time_max_ms": "3000",
    "log_segment_bytes": "8000000",
    "log_retention_ms": "-1",
    "auto_create_topics_enable": "false",
}


@dataclass(slots=True, kw_only=True)
class Options:
    """Duration, seed and producers (at `rate` records a second each; 0: full speed)."""

    seconds: float
    seed: int
    rate: float = 0.0
    writers: Sequence[tuple[Program, str]] = WRITERS
    kinds: Sequence[Kind] = tuple(Kind)
    settings: Mapping[str, str] = field(default_factory=dict)
    """The brokers' settings, in addition to `SETTINGS`."""
    idle_partitions: int = 0
    """Partitions of a further topic, in which nothing happens; its disks are judged as well."""
    steps: int | None = None
    """The number of faults, if these `seconds` are enough for them; None: as many as there is time for."""
    security: NativeDoor | None = None
    """If set, brokers are closed to strangers, and show each other by this who they are."""


class Run:
    """The parts of one run, in its own directory."""

    def __init__(
        self, directory: Path, options: Options, network: Network | None, disk: SmallDisk | None
    ) -> None:
        self.verdict = Verdict(title=f"nemesis, seed {options.seed}, {options.seconds:.0f} s")
        self._options = options
        disks = {} if disk is None else {SMALL_DISK_ID: disk.directory}
        security = _security(directory, options, network)
        self._cluster = Cluster(
            directory,
            {**SETTINGS, **options.settings},
            hosts=network,
            data_dirs=disks,
            security=security,
        )
        self._faults = Faults(self._cluster, network, disk)
        self._idle = IdleTopic(options.idle_partitions) if options.idle_partitions else None
        credentials = None if security is None else security.client_file
        self._writers = [
            Writer(number, program, topic, directory, credentials)
            for number, (program, topic) in enumerate(options.writers)
        ]
        self._reader = ReaderProcess(list(TOPICS), directory, credentials)

    def run(self, kinds: Sequence[Kind]) -> Verdict:
        """From the first start to the verdict. Leaves nothing running."""
        try:
            self._cluster.start()
            for topic, in_sync in TOPICS.items():
                self._cluster.create_topic(topic, PARTITIONS, min_insync_replicas=in_sync)
            if self._idle is not None:
                self._idle.create(self._cluster)
            self._break_things(kinds)
            sent = self._end_clients()
            self._stop_brokers()
            self._judge(sent)
        finally:
            for client in [*self._writers, self._reader]:
                client.kill()
            self._cluster.close()
        return self.verdict

    def _break_things(self, kinds: Sequence[Kind]) -> None:
        for writer in self._writers:
            writer.start(self._cluster.bootstrap, PARTITIONS, rate=self._options.rate)
            self._cluster.wait_until(
                lambda writer=writer: writer.acknowledged_bytes > 0,
                f"{writer.name} has a record acknowledged",
            )
        self._reader.start(self._cluster.bootstrap, PARTITIONS)
        stopping = threading.Event()
        timer = threading.Timer(self._options.seconds, stopping.set)
        timer.start()
        places = [(topic, partition) for topic in TOPICS for partition in range(PARTITIONS)]
        with Watch(self._cluster, places, self._acknowledged_bytes) as watch:
            plan = make_plan(
                self._options.seed,
                kinds,
                broker_ids=list(self._cluster.brokers),
                session_timeout_s=SESSION_TIMEOUT_S,
                small_disk_id=SMALL_DISK_ID,
            )
            self._faults.run(itertools.islice(plan, self._options.steps), stopping)
            timer.cancel()
            self._wait_until_healed()
        verdict = self.verdict
        verdict.inflicted = self._faults.counts
        verdict.problems += self._faults.problems
        verdict.longest_stop_s = self._faults.longest_stop_s
        verdict.leader_changes = sum(watch.leader_epochs.values())
        verdict.longest_without_leader_s = watch.longest_without_leader_s
        verdict.longest_without_acknowledgement_s = watch.acknowledgements.longest

    def _acknowledged_bytes(self) -> int:
        return sum(writer.acknowledged_bytes for writer in self._writers)

    def _wait_until_healed(self) -> None:
        """Waits until there are new records from every producer, each with all replicas in sync."""
        before = [writer.acknowledged_bytes for writer in self._writers]
        self._expect(
            lambda: all(
                writer.acknowledged_bytes > size or not writer.is_running
                for writer, size in zip(self._writers, before, strict=True)
            ),
            "every producer goes on",
        )

    def _end_clients(self) -> dict[int, int]:
        """Ends them in order; returns how many records each producer sent."""
        verdict, sent = self.verdict, {}
        for writer in self._writers:
            writer.begin_stop()
        for writer in self._writers:
            summary = writer.end()
            if "error" in summary:
                # It may have ended with an exception; then the number it sent is unknown.
                verdict.problems.append(f"{writer.name}: {summary['error']}")
                verdict.fatal_errors += "FATAL" in summary["error"]
            verdict.sent += int(summary.get("sent", 0))
            sent[writer.producer] = int(summary.get("sent", NUMBERS_PER_PRODUCER))
            verdict.acknowledged += int(summary.get("acked", 0))
            verdict.failed_deliveries += sum(summary.get("errors", {}).values())
            if summary.get("fatal"):
                verdict.fatal_errors += 1
                verdict.problems.append(f"{writer.name}: fatal: {summary['fatal']}")
            if summary.get("errors"):
                verdict.problems.append(f"{writer.name}: {summary['errors']}")
        self._expect(self._cluster.is_healed, "all replicas are in sync with equal ends")
        self._reader.begin_stop()
        summary = self._reader.end()
        if not summary.get("read_to_the_end") or summary.get("problems"):
            verdict.problems.append(f"reader: {summary}")
        return sent

    def _expect(self, is_so: Any, what: str) -> None:
        """Waits; a failure is recorded as a problem of the run, which is judged all the same."""
        try:
            self._cluster.wait_until(is_so, what, within_s=HEAL_TIMEOUT_S)
        except AssertionError:
            rows = {one: self._cluster.rows_if_any(one) for one in self._cluster.brokers}
            self.verdict.problems.append(f"not within {HEAL_TIMEOUT_S:.0f} s: {what}; {rows}")

    def _stop_brokers(self) -> None:
        statuses = {one: self._cluster.stop(one) for one in self._cluster.brokers}
        if any(statuses.values()):
            self.verdict.problems.append(f"the brokers' exit statuses are {statuses}")

    def _judge(self, sent: dict[int, int]) -> None:
        reads = self._reader.rows()
        acknowledged = {writer.producer: writer.acknowledgements() for writer in self._writers}
        for topic in TOPICS:
            for partition in range(PARTITIONS):
                acks = [
                    pair
                    for writer in self._writers
                    if writer.topic == topic
                    for pair in pairs(acknowledged[writer.producer].get(partition, array("q")))
                ]
                read = list(pairs(reads.get((topic, partition), array("q"))))
                self._judge_partition(topic, partition, sent, acks, read)
        if self._idle is not None:
            replicas = {one: broker.data_dir for one, broker in self._cluster.brokers.items()}
            self.verdict.problems += self._idle.problems(replicas)
        for broker_id, broker in self._cluster.brokers.items():
            self.verdict.problems += verify(broker_id, broker.data_dir)

    def _judge_partition(
        self,
        topic: str,
        partition: int,
        sent: dict[int, int],
        acknowledged: Sequence[tuple[int, int]],
        read: Sequence[tuple[int, int]],
    ) -> None:
        place, verdict = f"{topic}-{partition}", self.verdict
        replicas = {one: broker.data_dir for one, broker in self._cluster.brokers.items()}
        difference = first_difference(replicas, topic, partition)
        if difference is not None:
            verdict.differing_partitions += 1
            verdict.problems.append(f"{place}: {difference}")
        stored, problems = read_numbers(read_batches(replicas[1], topic, partition))
        verdict.problems += [f"{place}: {problem}" for problem in problems[:5]]
        findings = judge(Evidence(sent=sent, acknowledged=acknowledged, stored=stored, read=read))
        verdict.findings.join(place, findings)
        verdict.stored += len(stored)
        verdict.read += len(read)


def _security(directory: Path, options: Options, network: Network | None) -> ClusterSecurity | None:
    if options.security is None:
        return None
    hosts = [] if network is None else [network.address(host) for host in _BROKER_HOSTS]
    return ClusterSecurity(directory / "security", hosts=hosts, native=options.security)


def pairs(flat: array[int]) -> Iterator[tuple[int, int]]:
    """1, 2, 3, 4 -> (1, 2), (3, 4)."""
    each = iter(flat)
    return zip(each, each, strict=True)


def verify(broker_id: int, data_dir: Path) -> list[str]:
    """The problems that `echoless verify` finds in a stopped broker's data."""
    command = [sys.executable, "-m", "echoless", "verify", str(data_dir)]
    result = subprocess.run(command, capture_output=True, text=True, check=False, cwd=REPOSITORY)
    if result.returncode == 0:
        return []
    return [f"echoless verify, broker {broker_id}: {(result.stdout + result.stderr)[-1500:]}"]


def run(directory: Path, options: Options) -> Verdict:
    """Builds the network and disk that this machine allows, and runs."""
    left_out: dict[Kind, str] = {}
    with contextlib.ExitStack() as stack:
        network = disk = None
        if reason := reason_unavailable():
            left_out |= dict.fromkeys(CUTS, reason)
        else:
            network = stack.enter_context(Network([ZOOKEEPER, *_BROKER_HOSTS]))
        try:
            disk = stack.enter_context(SmallDisk(directory / "small-disk"))
        except DiskError as error:
            left_out[Kind.FULL_DISK] = str(error)
        whole = Run(directory, options, network, disk)
        whole.verdict.left_out = left_out
        verdict = whole.run([kind for kind in options.kinds if kind not in left_out])
        if disk is not None and not verdict.is_kept:
            keep_data_of(disk, directory)
        return verdict


def keep_data_of(disk: SmallDisk, directory: Path) -> None:
    """Copies a failing run's data from the small disk, which is unmounted with the run."""
    kept = directory / f"broker-{SMALL_DISK_ID}"
    subprocess.run(["cp", "-a", str(disk.directory), str(kept)], check=False)
