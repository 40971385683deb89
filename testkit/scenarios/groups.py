"""Scenarios of consumer groups: copiers, whose positions are commits, and what happens to those."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from echoless.client.connection import BrokerConnection
from echoless.testkit.admin import Admin
from echoless.testkit.scenarios.copier_process import SESSION_MS_MIN, CopierProcess
from echoless.testkit.scenarios.scenario import Scenario
from echoless.testkit.scenarios.spans import A, B, C, D, Span
from echoless.testkit.scenarios.stage import Stage

_SETTINGS: Final = {"group_min_session_timeout_ms": str(SESSION_MS_MIN)}
_COPIES: Final = "-copies"


class _Copying:
    """The input, its copies, and the group that copies."""

    def __init__(self, stage: Stage, partitions: int = 1) -> None:
        self._stage = stage
        self._partitions = partitions
        self.source = stage.create_topic(partitions=partitions)
        self.copies = stage.create_topic(_COPIES, partitions=partitions)
        self.group = f"group-{self.source}"
        stage.topic = self.source
        stage.begin()

    def send(self, *spans: Span, partition: int = 0) -> None:
        """Has the producer store records in the input."""
        self._stage.topic = self.source
        self._stage.send(*spans, partition=partition)
        self._stage.wait()

    def copier(self, instance: str | None = None) -> CopierProcess:
        servers = self._stage.servers.bootstrap_servers
        return CopierProcess(servers, self.group, self.source, self.copies, instance)

    def count_stored(self) -> int:
        """The number of copies in the log."""
        topics = Admin(self._stage.broker().admin).get("/topics")["topics"]
        (found,) = [one for one in topics if one["name"] == self.copies]
        return sum(one["log_end_offset"] for one in found["partitions"])

    def await_copies(self, *spans: Span, more: int = 0) -> None:
        """Waits until everything up to the last of these batches is in the log of the copies."""
        wanted = spans[-1].last + 1 + more
        self._stage.wait_until(
            f"{wanted} records are copied", lambda: self.count_stored() >= wanted
        )

    def await_position(self, offset: int) -> None:
        """Waits until the group has committed this offset for the first partition."""
        self._stage.wait_until(f"{offset} is committed", lambda: self._position() >= offset)

    def _position(self) -> int:
        asked = {"group_id": self.group, "member_id": None, "member_epoch": -1, "topics": None}
        host, _, port = self._stage.broker().bootstrap_servers.rpartition(":")
        with BrokerConnection.open(host, int(port)) as connection:
            fields = {"groups": [asked], "require_stable": False}
            (found,) = connection.request("offset_fetch", fields).groups
        rows = [row for topic in found.topics for row in topic.partitions]
        return max((row.committed_offset for row in rows if not row.partition_index), default=-1)

    def await_partitions(self, copier: CopierProcess, count: int) -> None:
        """Waits until a copier owns so many partitions."""
        self._stage.wait_until(
            f"it has {count} partitions", lambda: copier.figures["partitions"] == count
        )

    def await_commits(self, copier: CopierProcess, records: int) -> None:
        """Waits until a copier's commits cover so many records."""
        self._stage.wait_until(
            f"{records} records are committed", lambda: copier.figures["records"] >= records
        )

    @contextmanager
    def fault(self, action: str | dict[str, Any], api: str, **schedule: Any) -> Iterator[Any]:
        """Sets a rule for one API of the group."""
        match = {"api": api, "group": self.group}
        with self._stage.faults().rule(action, name=None, match=match, **schedule) as rule:
            yield rule

    def finish(self, copier: CopierProcess) -> None:
        """Ends a copier in order, and requires that it was content."""
        status = copier.stop()
        self._stage.require("the copier ends in order", holds=status == 0, seen=status)

    def require_repeats(self) -> None:
        """Requires that a copy was sent again, and recognised."""
        found = [one["decision"] for one in self._stage.decisions() if one["topic"] == self.copies]
        repeats = [one for one in found if one.endswith("duplicate")]
        self._stage.require("copies sent again are found in the window", holds=bool(repeats))


def _play_copier_restarted(stage: Stage) -> None:
    copying = _Copying(stage)
    with copying.copier() as first:
        copying.await_commits(first, A.first)
        stage.say("a copier has copied 0 to 113, and committed; its further commits are lost")
        with copying.fault("drop_request", "offset_commit"):
            copying.send(A)  # alone: what comes later is read once A's commit was confirmed
            copying.await_copies(A)
            stage.say("A is copied, and the copier is killed: its position is still 114")
            first.kill()
    with copying.copier() as second:
        stage.say("another one goes on from 114, under the same producer id and numbers")
        copying.await_commits(second, A.last + 1 - A.first)
        copying.require_repeats()
        copying.send(B)
        copying.await_copies(B)
        copying.finish(second)


def _play_two_copiers(stage: Stage) -> None:
    copying = _Copying(stage)
    with copying.copier() as first:
        copying.await_commits(first, A.first)
        with copying.fault("hold_request", "offset_commit", times=1) as held:
            copying.send(A, B)
            copying.await_copies(A, B)
            held.wait_until_held()
            stage.say(
                "the first copier's commit is on its way; it is paused, and the group takes it for dead"
            )
            first.pause()
            stage.faults().add({"type": "expire_member", "group": copying.group})
            with copying.copier() as second:
                stage.say("a second one sends what was not committed again, under the same numbers")
                copying.await_position(B.last + 1)
                copying.require_repeats()
                held.release()
                first.wake()
                stage.wait_until("it is back", lambda: first.figures["generations"] >= 2)
                stage.say("the late commit was refused (25); the first copier has joined again")
                copying.send(C, D)
                copying.await_copies(D)
                copying.finish(second)
        copying.finish(first)


def _play_coordinator_killed(stage: Stage) -> None:
    copying = _Copying(stage)
    broker_id = stage.leader()
    with copying.copier() as copier:
        copying.await_commits(copier, A.first)
        crash = {"type": "crash", "point": "before_response"}
        match = {"api": "offset_commit", "group": copying.group}
        stage.faults().add(crash, match=match, times=1)
        stage.say("the coordinator stores the commit of A and B, and dies before it answers")
        stage.send(A, B)
        broker = stage.servers.brokers[broker_id]
        stage.wait_until("it is dead", lambda: not broker.is_running)
        stage.start(broker_id)
        stage.say("it starts again; the copier repeats its commit in the same generation")
        stage.wait()
        copying.send(C)
        copying.await_commits(copier, C.last + 1)
        stage.require(
            "the generation has outlived its coordinator",
            holds=copier.figures["generations"] == 1,
            seen=copier.figures,
        )
        copying.finish(copier)


def _play_lost_sync(stage: Stage) -> None:
    copying = _Copying(stage, partitions=2)
    with copying.copier() as first:
        copying.await_commits(first, A.first)
        with (
            copying.fault("drop_response", "sync_group", times=1) as rule,
            copying.copier() as second,
        ):
            stage.say("a second copier joins, and the answer to one SyncGroup is lost")
            rule.wait_for_hits(1)
            for one in (first, second):
                copying.await_partitions(one, 1)
            stage.say("the member has joined again; each has one of the two partitions")
            copying.send(A, partition=0)
            copying.send(B, partition=1)
            copying.await_copies(B)
            copying.finish(second)
        copying.finish(first)


def _play_static_member(stage: Stage) -> None:
    copying = _Copying(stage)
    with copying.copier("copier-1") as first:
        copying.await_commits(first, A.first)
        stage.say("a copier with the instance id copier-1 is killed, and started again at once")
        first.kill()
    with copying.copier("copier-1") as second:
        copying.send(A, B)
        copying.await_commits(second, B.last + 1 - A.first)
        stage.require(
            "there was no rebalance",
            holds=second.figures["generation"] == first.figures["generation"],
            seen=(first.figures, second.figures),
        )
        copying.finish(second)


SCENARIOS: Final = (
    Scenario(
        name="copier-restarted",
        shows="A copier that was killed goes on from its last commit, and stores nothing twice.",
        faults="its commits are lost (`drop_request` of OffsetCommit), then SIGKILL",
        holds="The next copier sends the copies of A again, which are found, and goes on with B.",
        play=_play_copier_restarted,
        settings=_SETTINGS,
    ),
    Scenario(
        name="two-copiers",
        shows="A copier that the group takes for dead goes on: its commit comes late, and is refused.",
        faults="an OffsetCommit that is held meanwhile (`hold_request`), and the end of its session (`expire_member`)",
        holds="Both copiers send A and B under the same numbers; only the successor's commit counts.",
        play=_play_two_copiers,
        settings=_SETTINGS,
    ),
    Scenario(
        name="coordinator-killed",
        shows="A coordinator dies between a commit and its answer.",
        faults="it crashes when the commit is stored (`crash`, `before_response`)",
        holds="The group, its generation and the commit are there after the restart; the copier goes on.",
        play=_play_coordinator_killed,
        settings=_SETTINGS,
    ),
    Scenario(
        name="assignment-lost",
        shows="A rebalance in which the answer to a SyncGroup is lost.",
        faults="one lost answer (`drop_response` of SyncGroup)",
        holds="The member joins again, and each partition is copied by one copier.",
        play=_play_lost_sync,
        settings=_SETTINGS,
    ),
    Scenario(
        name="static-member-restarted",
        shows="A static member (KIP-345) that is back within its session keeps its partitions.",
        faults="SIGKILL",
        holds="It is assigned its partition without a rebalance, and goes on from its last commit.",
        play=_play_static_member,
        settings=_SETTINGS,
    ),
)
