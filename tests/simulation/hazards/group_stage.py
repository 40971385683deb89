"""The group of a scenario: clients ask the coordinator's core directly, and remember what they were promised."""

from __future__ import annotations

import inspect
from asyncio import Task
from typing import Any, Final

from echoless.broker.config.internal_topics import CONSUMER_OFFSETS
from echoless.coordinators.groups.answers import JoinAnswer, OffsetCommitAnswer, OffsetFetchAnswer
from echoless.coordinators.groups.consumer.requests import (
    JOINS,
    UNCHANGED,
    ConsumerHeartbeat,
    ConsumerHeartbeatAnswer,
)
from echoless.coordinators.groups.requests import (
    CommittedPartition,
    GroupRequest,
    JoinGroup,
    OffsetCommit,
    OffsetFetch,
    SyncGroup,
)
from echoless.protocol.errors import ErrorCode
from tests.simulation.machine import Machine
from tests.simulation.observations import Spot
from tests.simulation.stage import SPOT, Stage

OFFSETS: Final = Spot(CONSUMER_OFFSETS, 0)
SETTINGS: Final[dict[str, Any]] = {
    "offsets_topic_num_partitions": 1,
    "min_insync_replicas": 2,
    "group_min_session_timeout_ms": 1000,
}
_GROUP: Final = "g"
_NEW_GROUP: Final = "n"
_REBALANCE_MS: Final = 5000
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

    def answer(self, request: GroupRequest) -> Any:
        """The answer of the coordinator."""
        return self.ask_until(self.ask(self.coordinator, request))

    def ask_until(self, asked: Task[Any]) -> Any:
        """The answer to what was asked."""
        self._stage.until(asked.done)
        return asked.result()

    def fail_over(self) -> None:
        """Kills the coordinator; returns when another one serves its groups."""
        old = self.coordinator
        self._stage.kill(old)
        self._stage.until(lambda: self.is_led(but_by=old))
        self.fetched()

    def commit(self, offset: int, member_id: str = "", generation_id: int = -1) -> Task[Any]:
        """Begins to commit at the coordinator, without a member unless one is named."""
        row = CommittedPartition("t", 0, offset)
        request = OffsetCommit(_GROUP, generation_id, member_id, None, (row,))
        asked = self.ask(self.coordinator, request)
        asked.add_done_callback(lambda done: self._committed(done, offset))
        return asked

    def _committed(self, done: Task[Any], offset: int) -> None:
        answer: OffsetCommitAnswer = done.result()
        if answer.error_codes == (ErrorCode.NONE,):
            self.acknowledged = max(offset, self.acknowledged)

    def committed(self, offset: int, member_id: str = "", generation_id: int = -1) -> None:
        """Commits; returns when it is answered without an error."""
        self._stage.until(self.commit(offset, member_id, generation_id).done)
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

    def join(self, member_id: str = "") -> Task[Any]:
        """Begins to join as a client of the time before KIP-394."""
        request = JoinGroup(
            group_id=_GROUP,
            member_id=member_id,
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

    def synced(self, joined: JoinAnswer) -> None:
        """Has the leader of a generation assign."""
        given = tuple((one.member_id, b"all") for one in joined.members)
        request = SyncGroup(_GROUP, joined.generation_id, joined.member_id, None, given)
        assert self.answer(request).error_code is ErrorCode.NONE

    def heartbeat(
        self, member_id: str, epoch: int, topic: str | None = None, *, owns: bool = False
    ) -> ConsumerHeartbeatAnswer:
        """The answer to a member of the consumer protocol that owns the partition, or not."""
        request = ConsumerHeartbeat(
            group_id=_NEW_GROUP,
            member_id=member_id,
            member_epoch=epoch,
            instance_id=None,
            rack_id=None,
            rebalance_timeout_ms=_REBALANCE_MS if topic is not None else UNCHANGED,
            topic_names=None if topic is None else (topic,),
            topic_regex=None,
            assignor=None,
            owned=frozenset(((self.topic_id, 0),) if owns else ()),
            client_id="c",
            client_host="/h",
            uuid="",
        )
        answer: ConsumerHeartbeatAnswer = self.answer(request)
        return answer

    def look_for_second_owner(self, member_id: str) -> None:
        """Checks that a member which joins is not given the partition."""
        if self.heartbeat(member_id, JOINS, "t").assignment:
            self.findings.append(f"{member_id} is given a partition that another member has")

    @property
    def topic_id(self) -> bytes:
        broker = self.coordinator.broker
        assert broker is not None
        return broker.partitions[SPOT].topic_id.bytes

    def joined(self, member_id: str) -> None:
        """Joins as a member of the consumer protocol that is given the partition."""
        answer = self.heartbeat(member_id, JOINS, "t")
        assert answer.member_epoch == 1
        assert answer.assignment == {(self.topic_id, 0)}

    def judged(self) -> list[str]:
        """The promises broken here, and in the whole cluster once all is at rest again."""
        return self.findings + self._stage.findings()
