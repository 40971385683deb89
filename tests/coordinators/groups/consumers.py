"""A shell with topics, and heartbeats of members in short."""

from __future__ import annotations

from echoless.coordinators.groups.config import GroupCoordinatorConfig
from echoless.coordinators.groups.consumer.requests import (
    UNCHANGED,
    ConsumerDescribe,
    ConsumerDescribeAnswer,
    ConsumerHeartbeat,
    ConsumerHeartbeatAnswer,
)
from echoless.coordinators.groups.consumer.topics import KnownTopic
from echoless.coordinators.groups.effects import GroupEffect, MakeTarget, ResolveRegex
from echoless.coordinators.groups.events import RegexResolved, TargetMade
from echoless.protocol.state_records.consumer_group_values import TopicIdPartition
from tests.coordinators.groups.shell import Shell

GROUP = "g"
Partitions = frozenset[TopicIdPartition]


class Topics:
    """Topics that tests create, extend and delete."""

    def __init__(self, **partitions: int) -> None:
        self.version = 1
        self._known: dict[str, KnownTopic] = {}
        self._made = 0
        for name, count in partitions.items():
            self.set(name, count)

    def set(self, name: str, count: int) -> None:
        """Create the topic, or give it more partitions."""
        known = self._known.get(name)
        if known is None:
            self._made += 1
        topic_id = self._made.to_bytes(16, "big") if known is None else known.topic_id
        self._known[name] = KnownTopic(topic_id, count)
        self.version += 1

    def delete(self, name: str) -> None:
        del self._known[name]
        self.version += 1

    def find(self, name: str) -> KnownTopic | None:
        return self._known.get(name)

    def names(self) -> list[str]:
        return sorted(self._known)

    def ids(self, name: str, *indexes: int) -> Partitions:
        """Partitions of a topic; all of them if none is named."""
        found = self._known[name]
        return frozenset((found.topic_id, one) for one in indexes or range(found.partitions))

    def all(self) -> Partitions:
        return frozenset().union(*(self.ids(name) for name in self._known))


class ConsumerShell(Shell):
    """Resolves regular expressions as prefixes, at once or when told."""

    def __init__(self, config: GroupCoordinatorConfig | None = None, **topics: int) -> None:
        self.topics = Topics(**(topics or {"t": 6}))
        self.holds_regexes = False
        self.asked: list[ResolveRegex] = []
        self.holds_assignments = False
        self.assigning: list[MakeTarget] = []
        super().__init__(config)

    def known_topics(self) -> Topics:
        return self.topics

    def perform_other(self, effect: GroupEffect) -> None:
        if isinstance(effect, MakeTarget):
            self.assigning.append(effect)
            return
        assert isinstance(effect, ResolveRegex)
        self.asked.append(effect)

    def perform(self, effects) -> None:
        super().perform(effects)
        if not self.holds_regexes:
            self.resolve_all()
        if not self.holds_assignments:
            self.assign_all()

    def assign_all(self) -> None:
        """Take the steps of the targets that are being made."""
        while self.assigning:
            one = self.assigning.pop(0)
            for _ in one.steps:
                pass
            self.step(TargetMade(one.group_id, one.steps))

    def resolve_all(self) -> None:
        while self.asked:
            one = self.asked.pop(0)
            found = tuple(name for name in self.topics.names() if name.startswith(one.pattern))
            self.step(RegexResolved(one.group_id, one.pattern, found, self.topics.version))

    def load(self) -> None:
        self.asked.clear()
        self.assigning.clear()
        super().load()

    # --- requests in short

    def heartbeat_request(
        self,
        member_id: str,
        epoch: int,
        owned: Partitions | None = None,
        topics: tuple[str, ...] | None = None,
        **fields: object,
    ) -> ConsumerHeartbeat:
        """A heartbeat of group g; one with epoch 0 joins topic t, unless it says otherwise."""
        self.uuids += 1
        joins = epoch == 0
        given: dict[str, object] = {
            "group_id": GROUP,
            "member_id": member_id,
            "member_epoch": epoch,
            "instance_id": None,
            "rack_id": None,
            "rebalance_timeout_ms": 30_000 if joins else UNCHANGED,
            "topic_names": ("t",) if joins and topics is None else topics,
            "topic_regex": None,
            "assignor": None,
            "owned": frozenset() if joins and owned is None else owned,
            "client_id": "c",
            "client_host": "/127.0.0.1",
            "uuid": f"{self.uuids:04}",
            "sharer": self.sharer,
        }
        return ConsumerHeartbeat(**(given | fields))  # type: ignore[arg-type]

    def beat(self, member_id: str, epoch: int, *args, **fields) -> ConsumerHeartbeatAnswer:
        """The answer to a heartbeat."""
        answer = self.ask(self.heartbeat_request(member_id, epoch, *args, **fields))
        assert isinstance(answer, ConsumerHeartbeatAnswer)
        return answer

    def code(self, member_id: str, epoch: int, *args, **fields) -> int:
        """The error of a heartbeat."""
        return self.beat(member_id, epoch, *args, **fields).error_code

    def describe(self) -> ConsumerDescribeAnswer:
        answer = self.ask(ConsumerDescribe(GROUP))
        assert isinstance(answer, ConsumerDescribeAnswer)
        return answer

    def assigned(self) -> dict[str, Partitions]:
        return {one.member_id: one.assigned for one in self.describe().members}

    def settle(self, *member_ids: str) -> dict[str, int]:
        """Let members heartbeat until each is at its target. Returns their epochs."""
        epochs = {one.member_id: one.member_epoch for one in self.describe().members}
        owned = self.assigned()
        for _ in range(4):
            for member_id in member_ids:
                answer = self.beat(member_id, epochs[member_id], owned[member_id])
                assert answer.error_code == 0, answer
                epochs[member_id] = answer.member_epoch
                if answer.assignment is not None:
                    owned[member_id] = answer.assignment
        return epochs
