"""Coordinators of groups that are killed, paused and cut off: hazards H1, H2, H3 and H7 of consumer groups.

A client asks the coordinator's core directly, without a network between them; what is broken is between the brokers.
Promises G2 (no generation is given twice) and G4 (a commit that was answered is read back by every later coordinator).
"""

from __future__ import annotations

import inspect
from asyncio import Task
from typing import Any, Final

from coordinators.groups.answers import JoinAnswer, OffsetCommitAnswer, OffsetFetchAnswer
from coordinators.groups.requests import (
    CommittedPartition,
    GroupRequest,
    JoinGroup,
    OffsetCommit,
    OffsetFetch,
)
from protocol.errors import ErrorCode
from protocol.internal_topics import CONSUMER_OFFSETS
from tests.simulation.machine import Machine
from tests.simulation.observations import Spot
from tests.simulation.stage import Stage

OFFSETS: Final = Spot(CONSUMER_OFFSETS, 0)
SETTINGS: Final[dict[str, Any]] = {
    "offsets_topic_num_partitions": 1,
    "min_insync_replicas": 2,
    "group_min_session_timeout_ms": 1000,
}
_GROUP: Final = "g"
_NO_OFFSET: Final = -1


class Groups:
    """The group of a scenario: asks its coordinator, and remembers what it was promised."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self.acknowledged = _NO_OFFSET
        """The newest offset whose commit was answered without an error."""
        self.findings: list[str] = []
        service = stage.leader.service
        assert service is not None
        created = service.process.spawn(service.broker.services.groups.topic.until_created())
        stage.until(created.done)
        stage.until(lambda: len(self._state.get("isr", ())) == len(stage.machines))
        stage.until(self.is_led)

    @property
    def _state(self) -> dict[str, Any]:
        return self._stage.cluster.state_of(OFFSETS)

    @property
    def coordinator(self) -> Machine:
        """The machine that leads the partition, as the state node has it."""
        return self._stage.machines[self._state["leader"]]

    def is_led(self, but_by: Machine | None = None) -> bool:
        """Whether a broker leads the partition, another one than that."""
        leader = self._stage.machines.get(self._state["leader"])
        if leader is None or leader is but_by or leader.broker is None:
            return False
        partition = leader.broker.partitions.get(OFFSETS)
        return partition is not None and partition.is_leader

    def ask(self, machine: Machine, request: GroupRequest) -> Task[Any]:
        """Asks in the broker's process, as soon as that runs."""
        service = machine.service
        assert service is not None

        async def ask() -> Any:
            answered = service.broker.services.groups.ask(request)
            return await answered if inspect.isawaitable(answered) else answered

        return service.process.spawn(ask())

    def commit(self, offset: int) -> Task[Any]:
        """Begins to commit at the coordinator, without a member."""
        row = CommittedPartition("t", 0, offset)
        asked = self.ask(self.coordinator, OffsetCommit(_GROUP, -1, "", None, (row,)))
        asked.add_done_callback(lambda done: self._committed(done, offset))
        return asked

    def _committed(self, done: Task[Any], offset: int) -> None:
        answer: OffsetCommitAnswer = done.result()
        if answer.error_codes == (ErrorCode.NONE,):
            self.acknowledged = max(offset, self.acknowledged)

    def committed(self, offset: int) -> None:
        """Commits; returns when it is answered without an error."""
        self._stage.until(self.commit(offset).done)
        assert self.acknowledged == offset

    def fetch(self, machine: Machine) -> Task[Any]:
        """Begins to ask this broker for the offset."""
        return self.ask(machine, OffsetFetch(_GROUP, (("t", 0),), require_stable=True))

    def look(self, asked: Task[Any]) -> int | None:
        """Compare an answer to a fetch with what was promised; None if the broker gave none."""
        answer: OffsetFetchAnswer = asked.result()
        if answer.error_code is not ErrorCode.NONE:
            return None
        (row,) = answer.partitions
        if row.offset < self.acknowledged:
            self.findings.append(
                f"a commit of {self.acknowledged} was answered, and {row.offset} is read back"
            )
        return row.offset

    def fetched(self) -> int:
        """Asks until the coordinator of that moment answers."""
        while True:
            asked = self.fetch(self.coordinator)
            self._stage.until(asked.done)
            if (offset := self.look(asked)) is not None:
                return offset

    def join(self) -> Task[Any]:
        """Begins to join as a client of the time before KIP-394."""
        request = JoinGroup(
            group_id=_GROUP,
            member_id="",
            group_instance_id=None,
            client_id="c",
            client_host="/h",
            session_timeout_ms=6000,
            rebalance_timeout_ms=6000,
            protocol_type="consumer",
            protocols=(("range", b""),),
            uuid=f"uuid-{self._stage.cluster.loop.time()}",
            requires_known_member_id=False,
        )
        return self.ask(self.coordinator, request)

    def judged(self) -> list[str]:
        """The promises broken here, and in the whole cluster once all is at rest again."""
        return self.findings + self._stage.findings()


def a_zombie_coordinator_wakes() -> list[str]:
    """H1. A coordinator sleeps through the end of its session; its successor has a newer commit."""
    with Stage(**SETTINGS) as stage:
        groups = Groups(stage)
        groups.committed(1)
        zombie = groups.coordinator
        assert zombie.process is not None
        zombie.process.pause()
        stage.until(lambda: groups.is_led(but_by=zombie))
        assert groups.fetched() == 1
        groups.committed(2)
        asked = groups.fetch(zombie)
        stage.run(0.1)
        zombie.process.resume()
        stage.until(asked.done)
        groups.look(asked)
        return groups.judged()


def a_commit_that_no_replica_has() -> list[str]:
    """H2. A commit is in the coordinator's log alone when that is killed."""
    with Stage(**SETTINGS) as stage:
        groups = Groups(stage)
        groups.committed(1)
        coordinator = groups.coordinator
        for other in stage.machines.values():
            if other is not coordinator:
                stage.part(coordinator, other)
        groups.commit(2)
        stage.run(0.3)
        stage.kill(coordinator)
        stage.until(lambda: groups.is_led(but_by=coordinator))
        groups.fetched()
        return groups.judged()


def a_generation_is_cut_short() -> list[str]:
    """H3. A coordinator has given a generation to a member, and is killed before the assignment."""
    with Stage(**SETTINGS) as stage:
        groups = Groups(stage)
        coordinator = groups.coordinator
        first = groups.join()
        stage.until(first.done)
        stage.kill(coordinator)
        stage.until(lambda: groups.is_led(but_by=coordinator))
        second: JoinAnswer | None = None
        while second is None:
            asked = groups.join()
            stage.until(asked.done)
            second = asked.result() if asked.result().error_code is ErrorCode.NONE else None
        if second.generation_id <= first.result().generation_id:
            groups.findings.append(
                f"generation {second.generation_id} is given to {second.member_id} after "
                f"{first.result().generation_id} was given to {first.result().member_id}"
            )
        return groups.judged()


def a_load_reads_more_than_is_committed() -> list[str]:
    """H7. A new coordinator has a commit that is not committed, answers, and is killed in turn."""
    with Stage(**SETTINGS) as stage:
        groups = Groups(stage)
        groups.committed(1)
        old = groups.coordinator
        last, new = (one for one in stage.machines.values() if one is not old)
        stage.part(last, old)
        stage.part(last, new)
        groups.commit(2)
        stage.run(0.3)
        stage.kill(old)
        stage.until(lambda: groups.is_led(but_by=old))
        assert groups.coordinator is new
        asked = groups.fetch(new)
        stage.until(asked.done)
        read = groups.look(asked)
        stage.kill(new)
        stage.join(last, old)
        stage.until(lambda: groups.is_led(but_by=new))
        later = groups.fetched()
        if read is not None and later < read:
            groups.findings.append(f"{read} was read back, and {later} from the next coordinator")
        return groups.judged()
