"""The groups of one coordinator, and the effects of the step that changes them.

The parts of the coordinator share one `Groups`: it finds and makes groups, collects effects, and keeps what waits for
an append. What is durable changes here and nowhere else, when an append is committed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from echoless.coordinators.effects import (
    AppendRecords,
    CancelTimer,
    LogLine,
    Reply,
    SetTimer,
    StateRecord,
)
from echoless.coordinators.events import Now
from echoless.coordinators.groups.answers import GroupAnswer
from echoless.coordinators.groups.config import GroupCoordinatorConfig
from echoless.coordinators.groups.durable import DurableGroups
from echoless.coordinators.groups.effects import GroupEffect, TimerKey
from echoless.coordinators.groups.group import Group, stored_group
from echoless.coordinators.groups.member import Member
from echoless.coordinators.groups.usage import Usage, value_size
from echoless.protocol.errors import ErrorCode
from echoless.protocol.state_records.classic_group_value import GroupValue, write_group_value
from echoless.protocol.state_records.consumer_group_values import (
    ConsumerValue,
    write_consumer_value,
)
from echoless.protocol.state_records.group_keys import (
    ConsumerKey,
    GroupKey,
    OffsetKey,
    write_consumer_key,
    write_group_key,
    write_offset_key,
)
from echoless.protocol.state_records.offset_value import OffsetValue, write_offset_value

Record = (
    tuple[OffsetKey, OffsetValue | None]
    | tuple[GroupKey, GroupValue | None]
    | tuple[ConsumerKey, ConsumerValue | None]
)
Outcome = Callable[[ErrorCode], None]
"""Called once: with NONE when an append is committed, else with the error that it failed with."""


class _Appended:
    """Records of a group whose append has not ended. Written out, because there is one for every commit."""

    __slots__ = ("group", "outcome", "records", "size")

    def __init__(
        self, group: Group, records: Sequence[Record], outcome: Outcome | None, size: int
    ) -> None:
        self.group = group
        self.records = records
        self.outcome = outcome
        """None once it was called: the append failed, and may be committed all the same."""
        self.size = size
        """Bytes of assignments and metadata of offsets."""


class Groups:
    """All groups of a coordinator: what is stored of them, and those that are more than that."""

    def __init__(
        self, config: GroupCoordinatorConfig, usage: Callable[[], Usage] | None = None
    ) -> None:
        self.config = config
        self._usage = usage or self.own_usage
        self.durable = DurableGroups()
        self.live: dict[str, Group] = {}
        """Groups with soft state. A stored group that is empty and idle has none, and is made when needed."""
        self.now = Now(0, 0)
        self.unnamed: dict[int, tuple[Group, Member]] = {}
        """Members that wait in Join and do not know their ids yet, by their requests."""
        self.members = 0
        """Members and ids handed out, of all groups."""
        self.protocol_bytes = 0
        self._appended_bytes = 0
        """Assignments and metadata of offsets that are being stored."""
        self._effects: list[GroupEffect] = []
        self._token = 0
        self._appended: dict[int, _Appended] = {}

    # --- groups

    def find(self, group_id: str) -> Group | None:
        """The group; None if there is none."""
        group = self.live.get(group_id)
        if group is None:
            durable = self.durable.groups.get(group_id)
            if durable is None:
                return None
            group = self.live[group_id] = stored_group(group_id, durable)
        return group

    def find_or_create(self, group_id: str) -> Group | None:
        """The group, which is made if there is none; None if there are too many."""
        group = self.find(group_id)
        if group is None:
            if self._usage().groups >= self.config.groups_max:
                return None
            group = self.live[group_id] = Group(group_id)
        return group

    def settle(self, group: Group) -> None:
        """Forget the soft state of a group that has none left."""
        if not group.is_empty or group.pending_members or group.appends:
            return
        if group.consumer is not None and group.consumer.has_waiting:
            return
        stored = self.durable.groups.get(group.group_id)
        if stored is None or stored.value is None or not stored.value.members:
            self.live.pop(group.group_id, None)

    # --- bounds

    def own_usage(self) -> Usage:
        """How much this coordinator holds. Groups that are not stored yet are counted only if there are more."""
        size = self.protocol_bytes + self.durable.size + self._appended_bytes
        return Usage(max(len(self.live), len(self.durable.groups)), self.members, size)

    def has_room_for_member(self) -> bool:
        """Whether the coordinators of the broker may hold one more member."""
        return self._usage().members < self.config.members_max

    def has_room_for(self, more: int) -> bool:
        """Whether the coordinators of the broker may hold so many more bytes. There is always room for less."""
        return more <= 0 or self._usage().size + more <= self.config.bytes_max

    # --- effects

    def take_effects(self) -> list[GroupEffect]:
        """The effects since the last call."""
        effects, self._effects = self._effects, []
        return effects

    def reply(self, reply_id: int | None, answer: GroupAnswer) -> None:
        """Answer a request; None is one that no one waits for."""
        if reply_id is not None:
            self.unnamed.pop(reply_id, None)
            self._effects.append(Reply(reply_id, answer))

    def emit(self, effect: GroupEffect) -> None:
        self._effects.append(effect)

    def note(self, message: str) -> None:
        self._effects.append(LogLine(message))

    def set_timer(self, key: TimerKey, at_ms: int) -> None:
        self._effects.append(SetTimer(key, at_ms))

    def cancel_timer(self, key: TimerKey) -> None:
        self._effects.append(CancelTimer(key))

    # --- appends

    @property
    def last_append(self) -> int:
        """The token of the last append."""
        return self._token

    def oldest_pending_append(self) -> int:
        """The token of the oldest append that may still be committed; without one, that of the next append."""
        return next(iter(self._appended), self._token + 1)

    def append(self, group: Group, records: Sequence[Record], outcome: Outcome) -> int:
        """Append records of a group. Returns the token; `outcome` is called in a later step."""
        self._token += 1
        group.appends += 1
        size = sum([value_size(value) for _, value in records])
        self._appended_bytes += size
        self._appended[self._token] = _Appended(group, records, outcome, size)
        for key, _ in records:
            if isinstance(key, OffsetKey):
                place = (key.topic, key.partition)
                group.pending_offsets[place] = group.pending_offsets.get(place, 0) + 1
        self._effects.append(
            AppendRecords(self._token, tuple([_packed(record) for record in records]))
        )
        return self._token

    def may_commit(self, token: int) -> bool:
        """Whether an append is neither committed nor refused."""
        return token in self._appended

    def committed(self, token: int) -> Group:
        """Apply the records of an append that the high watermark has passed. Returns their group."""
        appended = self._appended.pop(token)
        for key, value in appended.records:
            self.durable.put(key, value)
        self._end(appended)
        if appended.outcome is not None:
            appended.outcome(ErrorCode.NONE)
        self.settle(appended.group)
        return appended.group

    def append_failed(self, token: int, code: ErrorCode, *, may_commit: bool) -> None:
        """Notify the part that waits for an append of its failure. One that may commit is kept."""
        appended = self._appended[token]
        outcome, appended.outcome = appended.outcome, None
        if not may_commit:
            del self._appended[token]
            self._end(appended)
        if outcome is not None:
            outcome(code)
        self.settle(appended.group)

    def _end(self, appended: _Appended) -> None:
        group = appended.group
        group.appends -= 1
        self._appended_bytes -= appended.size
        for key, _ in appended.records:
            if isinstance(key, OffsetKey):
                place = (key.topic, key.partition)
                group.pending_offsets[place] -= 1
                if not group.pending_offsets[place]:
                    del group.pending_offsets[place]


def _packed(record: Record) -> StateRecord:
    key, value = record
    if isinstance(key, OffsetKey):
        assert value is None or isinstance(value, OffsetValue)
        packed = None if value is None else write_offset_value(value)
        return StateRecord(write_offset_key(key), packed)
    if isinstance(key, GroupKey):
        assert value is None or isinstance(value, GroupValue)
        packed = None if value is None else write_group_value(value)
        return StateRecord(write_group_key(key.group_id), packed)
    assert not isinstance(value, OffsetValue | GroupValue)
    return StateRecord(
        write_consumer_key(key), None if value is None else write_consumer_value(value)
    )
