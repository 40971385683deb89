"""One run: a cluster, groups of real clients, disturbances from a seed; then every log is judged."""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from confluent_kafka import Consumer, KafkaException, TopicPartition

from echoless.broker.config.internal_topics import CONSUMER_OFFSETS
from echoless.protocol.state_records.classic_group_value import GroupValue, read_group_value
from echoless.protocol.state_records.group_keys import GroupKey, OffsetKey, OtherKey, read_key
from echoless.protocol.state_records.partitioner import partition_of
from tests.group_members.epochs import Epochs
from tests.group_members.events import Read
from tests.group_members.judge import Evidence, judge
from tests.group_members.members import Kind, Member
from tests.group_members.traffic import Traffic
from tests.group_members.verdict import Verdict
from tests.proofs.rounds import rounds
from tests.support.cluster import Cluster

TOPIC: Final = "t"
PARTITIONS: Final = 6
_OFFSETS_PARTITIONS: Final = 8
_RATE: Final = 100.0
_PATIENCE_S: Final = 120.0
_ASK_AGAIN_S: Final = 0.1
_SETTINGS: Final = {
    "min_insync_replicas": "2",
    "group_min_session_timeout_ms": "1000",
    "group_consumer_session_timeout_ms": "4000",
    "group_consumer_heartbeat_interval_ms": "400",
    "zookeeper_session_timeout_ms": "2000",
}
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The groups, each with the kinds of its members, and what is done to them."""

    casts: Mapping[str, Sequence[Kind]]
    seed: int
    seconds: float | None = None
    """How long disturbances go on; None: each once."""


class Group:
    """One group and everyone who ever was its member."""

    def __init__(self, name: str, kinds: Sequence[Kind], directory: Path) -> None:
        self.name = name
        self._kinds = kinds
        self._directory = directory
        self.members: list[Member] = []
        self.read: set[tuple[int, int]] = set()
        """Partition and offset of every record that reached a member."""

    @property
    def running(self) -> list[Member]:
        return [member for member in self.members if member.is_running]

    def start(self, bootstrap: str) -> None:
        """Starts a member of each kind."""
        for kind in self._kinds:
            self.join(kind, bootstrap)

    def join(self, kind: Kind, bootstrap: str) -> None:
        """Starts one more member."""
        member = Member(kind, len(self.members), self._directory)
        self.members.append(member)
        member.start(bootstrap, TOPIC, self.name)

    def look(self, bootstrap: str) -> None:
        """Reads what is new in the logs. A member that ended by itself is a failure, or starts again if it is kcat."""
        for member in self.members:
            for event in member.tail.read():
                if isinstance(event, Read):
                    self.read.add((event.partition, event.offset))
            status = member.exit_status
            if status is not None and member.kind.gives_up:
                member.kill()
                self.join(member.kind, bootstrap)
                return
            assert status is None, f"{member.name} ended with {status}: {member.said()}"


class Run:
    """The parts of one run."""

    def __init__(self, options: Options, directory: Path) -> None:
        self._options = options
        self._dice = random.Random(options.seed)
        self.verdict = Verdict(title=f"groups, seed {options.seed}")
        self._cluster = Cluster(directory, _SETTINGS)
        self._is_quiet = False
        """Whether no more records come."""
        self._groups = []
        for name, kinds in options.casts.items():
            place = directory / name
            place.mkdir()
            self._groups.append(Group(name, kinds, place))
        self._disturbances: Sequence[Callable[[], None]] = (
            self._kill_members,
            self._pause_members,
            self._leave_and_join,
            self._kill_coordinators,
        )

    def run(self) -> Verdict:
        """Runs from the first start to the verdict."""
        with self._cluster as cluster:
            cluster.start()
            cluster.create_topic(TOPIC, PARTITIONS)
            traffic = Traffic(cluster.bootstrap, TOPIC, PARTITIONS, _RATE)
            traffic.start()
            try:
                for group in self._groups:
                    group.start(cluster.bootstrap)
                self._wait_for_progress()
                for disturb in self._plan():
                    _log.info("%s", disturb.__name__.strip("_").replace("_", " "))
                    disturb()
                    self.verdict.disturbances += 1
                    self._wait_for_progress()
                traffic.stop()
                self._is_quiet = True
                self._wait_for_progress()
                self._end(traffic)
            except AssertionError as failure:
                self.verdict.problems.append(str(failure))
            finally:
                for group in self._groups:
                    for member in group.members:
                        member.kill()
        return self.verdict

    def _plan(self) -> Iterator[Callable[[], None]]:
        seconds = self._options.seconds
        if seconds is None:
            yield from self._dice.sample(self._disturbances, len(self._disturbances))
            return
        end = time.monotonic() + seconds
        for disturb in rounds(self._dice, self._disturbances):
            if time.monotonic() > end:
                return
            yield disturb

    def _kill_members(self) -> None:
        """A member of each group dies without a word, and another one comes."""
        for group in self._groups:
            victim = self._any_of(group, dies=True)
            _log.info("killing %s", victim.name)
            victim.kill()
            group.join(victim.kind, self._cluster.bootstrap)

    def _pause_members(self) -> None:
        """A member of each group is silent until the others have read what was its share."""
        victims = [self._any_of(group) for group in self._groups if len(group.running) > 1]
        for victim in victims:
            _log.info("pausing %s", victim.name)
            victim.pause()
        try:
            self._wait_for_progress("while members are paused")
        finally:
            for victim in victims:
                victim.resume()

    def _leave_and_join(self) -> None:
        """A member of each group leaves as it should, and another one comes."""
        for group in self._groups:
            leaver = self._any_of(group)
            _log.info("%s leaves", leaver.name)
            is_new = not leaver.tail.events  # SIGTERM may come before it is ready for it
            status = leaver.leave()
            assert status == 0 or is_new or leaver.kind.gives_up, (
                f"{leaver.name} left with status {status}: {leaver.said()}"
            )
            group.join(leaver.kind, self._cluster.bootstrap)

    def _kill_coordinators(self) -> None:
        """The coordinator of one of the groups is killed while members come and go, and returns."""
        group = self._dice.choice(self._groups)
        victim = self._any_of(group, dies=True)
        coordinator = self._coordinator(group)
        _log.info("killing broker %d, coordinator of %s", coordinator, group.name)
        victim.kill()
        group.join(victim.kind, self._cluster.bootstrap)
        self._cluster.kill(coordinator)
        self.verdict.coordinators_killed += 1
        try:
            self._cluster.wait_until(lambda: self._coordinator(group) != coordinator)
            self._wait_for_progress("without a broker")
        finally:
            self._cluster.start_broker(coordinator)
        self._cluster.wait_until(self._cluster.is_in_sync)

    def _any_of(self, group: Group, *, dies: bool = False) -> Member:
        """One of its members that has joined.

        kcat is not killed: what it committed by itself it may not have written yet.
        """
        able = [one for one in group.running if not (dies and one.kind.program is None)]
        return self._dice.choice([one for one in able if one.tail.events] or able)

    def _coordinator(self, group: Group) -> int:
        """Return the group's coordinator, as soon as there is one."""
        place = CONSUMER_OFFSETS, partition_of(group.name, _OFFSETS_PARTITIONS)
        return self._cluster.wait_for_leader(*place)

    def _newest(self) -> set[tuple[int, int]]:
        """Return the last record below the high watermark of each partition, which a group has yet to reach."""
        rows = self._cluster.leader_rows()
        return {
            (partition, rows[TOPIC, partition].high_watermark - 1)
            for partition in range(PARTITIONS)
            if (TOPIC, partition) in rows and rows[TOPIC, partition].high_watermark
        }

    def _wait_for_progress(self, when: str = "in quiet times") -> None:
        """Returns when every group has read something new in every partition."""
        before = dict(self._newest())
        self._cluster.wait_until(
            lambda: (
                self._is_quiet
                or all(offset > before.get(partition, -1) for partition, offset in self._newest())
            ),
            "records flow",
        )
        self._wait_until_read(self._newest(), when)

    def _wait_until_read(self, wanted: set[tuple[int, int]], when: str) -> None:
        deadline = time.monotonic() + _PATIENCE_S
        while True:
            for group in self._groups:
                group.look(self._cluster.bootstrap)
            behind = {
                group.name: sorted(wanted - group.read)
                for group in self._groups
                if not wanted <= group.read
            }
            if not behind:
                return
            assert time.monotonic() < deadline, f"not read within {_PATIENCE_S} s {when}: {behind}"
            time.sleep(_ASK_AGAIN_S)

    def _end(self, traffic: Traffic) -> None:
        """Everyone leaves; then the logs are compared with what is stored."""
        for group in self._groups:
            for member in group.running:
                status = member.leave()
                if status != 0 and member.tail.events and not member.kind.gives_up:
                    self.verdict.problems.append(
                        f"{member.name} left with {status}: {member.said()}"
                    )
            group.look(self._cluster.bootstrap)
        stored, epochs = _stored_groups(self._cluster.bootstrap, list(self._options.casts))
        committed: dict[str, list[dict[int, int]]] = {group.name: [] for group in self._groups}
        for turn in range(2):
            for group in self._groups:
                committed[group.name].append(_committed(self._cluster.bootstrap, group.name))
            if turn == 0:
                for broker in {self._coordinator(group) for group in self._groups}:
                    self._cluster.kill(broker)
                    self._cluster.start_broker(broker)
                    self._cluster.wait_until(self._cluster.is_in_sync)
        for group in self._groups:
            evidence = Evidence(
                traffic.stored,
                [member.life for member in group.members],
                stored[group.name],
                committed[group.name],
                epochs[group.name],
            )
            self.verdict.join(group.name, len(group.members), judge(evidence))


def _committed(bootstrap: str, group: str) -> dict[int, int]:
    """Ask the coordinator of this moment for the group's committed offsets."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    wanted = [TopicPartition(TOPIC, partition) for partition in range(PARTITIONS)]
    found = consumer.committed(wanted, timeout=_PATIENCE_S)
    consumer.close()
    return {one.partition: one.offset for one in found}


def _stored_groups(
    bootstrap: str, names: Sequence[str]
) -> tuple[dict[str, list[GroupValue]], dict[str, Epochs]]:
    """Read every record of these groups in `__consumer_offsets`, in order: of the one protocol and the other."""
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "reader", "enable.partition.eof": True}
    )
    found: dict[str, list[GroupValue]] = {name: [] for name in names}
    epochs = {name: Epochs() for name in names}
    consumer.assign([TopicPartition(CONSUMER_OFFSETS, p, 0) for p in range(_OFFSETS_PARTITIONS)])
    at_end = 0
    deadline = time.monotonic() + _PATIENCE_S
    while at_end < _OFFSETS_PARTITIONS and time.monotonic() < deadline:
        message = consumer.poll(1.0)
        if message is None:
            continue
        if message.error() is not None:
            if message.error().name() != "_PARTITION_EOF":
                raise KafkaException(message.error())
            at_end += 1
            continue
        key, value = read_key(message.key() or b""), message.value()
        if isinstance(key, GroupKey) and key.group_id in found and value is not None:
            found[key.group_id].append(read_group_value(value))
        elif not isinstance(key, GroupKey | OffsetKey | OtherKey) and key.group_id in epochs:
            epochs[key.group_id].put(message.timestamp()[1], key, value)
    consumer.close()
    assert at_end == _OFFSETS_PARTITIONS, (
        f"only {at_end} partitions of {CONSUMER_OFFSETS} were read"
    )
    return found, epochs
