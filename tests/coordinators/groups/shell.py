"""A shell around a `GroupCoordinator` with a log, timers and a clock that tests move by hand."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from echoless.coordinators.effects import (
    AppendRecords,
    CancelTimer,
    LogLine,
    Reply,
    SetTimer,
    StateRecord,
)
from echoless.coordinators.events import (
    Abandoned,
    AppendCommitted,
    AppendFailed,
    Now,
    Requested,
    TimerFired,
    TransactionEnded,
)
from echoless.coordinators.groups.answers import GroupAnswer, refusal
from echoless.coordinators.groups.config import GroupCoordinatorConfig
from echoless.coordinators.groups.consumer.topics import KnownTopics
from echoless.coordinators.groups.coordinator import GroupCoordinator
from echoless.coordinators.groups.deleted_topic import DeletedTopic
from echoless.coordinators.groups.effects import GroupEffect, TimerKey
from echoless.coordinators.groups.events import GroupEvent
from echoless.coordinators.groups.group_ids import group_id_error
from echoless.coordinators.groups.requests import GroupRequest, JoinGroup, SyncGroup
from echoless.coordinators.groups.while_loading import refusal_while_loading
from echoless.protocol.errors import ErrorCode
from tests.coordinators.groups.bugs import Bugs

WALL_MS = 1_700_000_000_000
RANGE = (("range", b"\x00\x01\x00\x00\x00\x01\x00\x01t"),)
"""A subscription to topic t."""


class LoggedInTransaction(NamedTuple):
    """A record of a transactional batch."""

    producer_id: int
    record: StateRecord


class LoggedMarker(NamedTuple):
    """The end of a producer's transaction."""

    producer_id: int
    is_commit: bool


class Shell:
    """Carries out effects: appends commit at once, unless `holds_appends`."""

    def __init__(self, config: GroupCoordinatorConfig | None = None) -> None:
        self.config = config or GroupCoordinatorConfig()
        self.ms = 0
        self.wall_skew_ms = 0
        self.log: list[StateRecord | LoggedInTransaction | LoggedMarker] = []
        """The records that are committed."""
        self.held: list[AppendRecords] = []
        """Appends that are neither committed nor refused."""
        self.holds_appends = False
        self.timers: dict[TimerKey, int] = {}
        self.answers: dict[int, GroupAnswer] = {}
        self.notes: list[str] = []
        self.uuids = 0
        self.sharers = 0
        """Sharers that members count towards by turns."""
        self.bugs = Bugs()
        self.recoveries = 0
        self._owed: dict[int, GroupRequest] = {}
        """Requests that the coordinator has not answered yet."""
        self._replies = 0
        self.coordinator = GroupCoordinator(self.config, topics=self.known_topics())

    @property
    def now(self) -> Now:
        return Now(self.ms, WALL_MS + self.ms + self.wall_skew_ms)

    def known_topics(self) -> KnownTopics | None:
        """The topics that members of the consumer protocol can subscribe to."""

    def perform_other(self, effect: GroupEffect) -> None:
        """Carry out an effect that only the consumer protocol has."""
        raise AssertionError(effect)

    def load(self) -> None:
        """Lose the lead, and lead again: appends that were not committed are gone."""
        self.held.clear()
        self.timers.clear()
        self._owed.clear()
        self.coordinator = GroupCoordinator(self.config, topics=self.known_topics())
        for record in self.log:
            self._replay(record)
        for effects in self.coordinator.start(self.now):
            self.perform(effects)

    def _replay(self, record: StateRecord | LoggedInTransaction | LoggedMarker) -> None:
        match record:
            case LoggedInTransaction(producer_id, of_transaction):
                assert self.coordinator.apply_in_transaction(producer_id, *of_transaction) is None
            case LoggedMarker(producer_id, is_commit):
                self.coordinator.end_replayed_transaction(producer_id, is_commit)
            case _:
                assert self.coordinator.apply(*record) is None

    def end_transaction(self, producer_id: int, *, is_commit: bool) -> None:
        """Store a marker, behind all appends."""
        self.commit_all()
        self.log.append(LoggedMarker(producer_id, is_commit))
        self.step(TransactionEnded(producer_id, is_commit))

    def _store(self, append: AppendRecords) -> None:
        if append.transaction is None:
            self.log += append.records
        else:
            producer_id = append.transaction.producer_id
            self.log += [LoggedInTransaction(producer_id, one) for one in append.records]

    def send(self, request: GroupRequest) -> int:
        """Send a request; its number is that of its answer."""
        self._replies += 1
        code = group_id_error(request)
        if code is ErrorCode.NONE:
            self._owed[self._replies] = request
            self.step(Requested(self._replies, request))
        else:
            self.answers[self._replies] = refusal(request, code)
        return self._replies

    def ask(self, request: GroupRequest):
        """The answer to a request that does not wait."""
        return self.answers[self.send(request)]

    def step(self, event: GroupEvent) -> None:
        self.bugs.is_in_step = not isinstance(event, Abandoned)
        try:
            effects = self.coordinator.step(event, self.now)
        except self.bugs.kind:
            self.recover(event)
            return
        finally:
            self.bugs.is_in_step = False
        self.perform(effects)

    def recover(self, event: GroupEvent) -> None:
        """Go on after a bug, as the broker's shell does."""
        self.recoveries += 1
        recovery = self.coordinator.recover(event, self.now)
        assert recovery is not None
        for reply_id, request in list(self._owed.items()):
            if request.group_id == recovery.name:
                self.answers[reply_id] = refusal_while_loading(request)
                del self._owed[reply_id]
        self.perform(recovery.effects)

    def perform(self, effects: Iterable[GroupEffect]) -> None:
        for effect in effects:
            match effect:
                case AppendRecords():
                    assert not self.held or self.held[-1].token < effect.token
                    self.held.append(effect)
                case Reply():
                    assert effect.reply_id not in self.answers, "a request is answered once"
                    self.answers[effect.reply_id] = effect.answer
                    self._owed.pop(effect.reply_id, None)
                case SetTimer():
                    self.timers[effect.key] = effect.at_ms
                case CancelTimer():
                    self.timers.pop(effect.key, None)
                case LogLine():
                    self.notes.append(effect.message)
                case _:
                    self.perform_other(effect)
        if not self.holds_appends:
            self.commit_all()

    def commit_all(self) -> None:
        while self.held:
            self.commit()

    def commit(self) -> None:
        """Commit the oldest append."""
        append = self.held.pop(0)
        self._store(append)
        self.step(AppendCommitted(append.token))

    def refuse(self, code: ErrorCode) -> None:
        """Refuse the oldest append; nothing of it is in the log."""
        append = self.held.pop(0)
        self.step(AppendFailed(append.token, code))

    def finish_append(
        self, choices: random.Random, failures: Sequence[ErrorCode], check: Callable[[], None]
    ) -> None:
        """Commit the oldest append, or refuse it, or let it time out and commit all the same; `check` between the two."""
        if not self.held:
            return
        outcome = choices.randrange(6)
        if outcome < 4:
            self.commit()
        elif outcome == 4:
            self.refuse(choices.choice(failures))
        else:
            append = self.held.pop(0)
            self.step(AppendFailed(append.token, ErrorCode.REQUEST_TIMED_OUT, may_commit=True))
            check()
            self._store(append)
            self.step(AppendCommitted(append.token))

    def abandon(self, reply_id: int) -> None:
        self._owed.pop(reply_id, None)
        self.step(Abandoned(reply_id))

    def pass_time(self, duration_ms: int) -> None:
        """Let time pass, and timers fire in their order."""
        end = self.ms + duration_ms
        while due := [(at, key) for key, at in self.timers.items() if at <= end]:
            at, key = min(due, key=lambda one: (one[0], str(one[1])))
            del self.timers[key]
            self.ms = max(self.ms, at)
            self.step(TimerFired(key))
        self.ms = end

    def expire(self) -> None:
        for effects in self.coordinator.expire_offsets(self.now):
            self.perform(effects)

    def forget(self, name: str, deleted_ms: int | None = None) -> DeletedTopic:
        """Begin to forget a topic that was deleted at that time, or now."""
        topic = DeletedTopic(name, self.now.wall_ms if deleted_ms is None else deleted_ms)
        self.go_on_forgetting(topic)
        return topic

    def go_on_forgetting(self, topic: DeletedTopic) -> None:
        for effects in self.coordinator.forget_topic(topic):
            self.perform(effects)

    def is_reloading(self) -> bool:
        """Whether group g waits for its appends after a bug."""
        return "g" in self.coordinator._store.reloading

    # --- requests in short

    def join(self, member_id: str = "", **fields) -> int:
        """Send JoinGroup of group g."""
        return self.send(self.join_request(member_id, **fields))

    def join_request(self, member_id: str = "", **fields) -> JoinGroup:
        self.uuids += 1
        given = {
            "group_id": "g",
            "member_id": member_id,
            "group_instance_id": None,
            "client_id": "c",
            "client_host": "/127.0.0.1",
            "session_timeout_ms": 10_000,
            "rebalance_timeout_ms": 60_000,
            "protocol_type": "consumer",
            "protocols": RANGE,
            "uuid": f"{self.uuids:04}",
            "sharer": self.sharer,
        }
        return JoinGroup(**(given | fields))

    @property
    def sharer(self) -> str:
        return f"s{self.uuids % self.sharers}" if self.sharers else ""

    def new_member(self, **fields) -> tuple[str, int]:
        """A dynamic member that has asked for its id, and joins with it: the id, and its waiting JoinGroup."""
        member_id = self.answers[self.join(**fields)].member_id
        return member_id, self.join(member_id, **fields)

    def sync(self, member_id: str, generation_id: int, **fields) -> int:
        """Send SyncGroup of group g."""
        given = {"group_instance_id": None, "assignments": ()} | fields
        return self.send(SyncGroup("g", generation_id, member_id, **given))

    def stable(self, count: int = 1, **fields) -> list[str]:
        """The ids of the members of a new group g that is stable in generation 1, the leader first."""
        members = [self.new_member(**fields) for _ in range(count)]
        self.pass_time(self.config.group_initial_rebalance_delay_ms * 2)
        leader, join = members[0]
        generation_id = self.answers[join].generation_id
        for member_id, _ in members[1:]:
            self.sync(member_id, generation_id)
        given = tuple((member_id, member_id.encode()) for member_id, _ in members)
        answer = self.answers[self.sync(leader, generation_id, assignments=given)]
        assert answer.error_code is ErrorCode.NONE
        return [member_id for member_id, _ in members]

    def state(self) -> str:
        """The state of group g, Dead if there is none."""
        return self.coordinator._store.live["g"].state.value if "g" in self.live else "Dead"

    @property
    def live(self) -> dict:
        return self.coordinator._store.live
