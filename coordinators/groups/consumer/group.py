"""A group of the consumer protocol while its coordinator serves it.

`state` is what is stored and what is being stored: there is at most one append of the group at a time (`token`), or a large
target in the making, and
requests that come meanwhile wait in `queue`. So an answer never depends on a record that may still be lost, and a
failed append is undone by a fresh copy of what is committed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from echoless.coordinators.groups.consumer.state import ConsumerState
from echoless.protocol.state_records.consumer_group_values import (
    ConsumerMemberState,
    ConsumerValue,
    TopicIdPartition,
)
from echoless.protocol.state_records.group_keys import (
    ConsumerKey,
    CurrentKey,
    EpochKey,
    MemberKey,
    RegexKey,
    TargetEpochKey,
    TargetKey,
)

if TYPE_CHECKING:
    from echoless.coordinators.events import Now
    from echoless.coordinators.groups.answers import GroupAnswer
    from echoless.coordinators.groups.effects import Effects, TimerKey
    from echoless.coordinators.groups.requests import GroupRequest

ASSIGNING: Final = 0
"""The token of no append: a target is being made, and what changes will be appended with it."""
_REMOVED_FIRST: Final = (CurrentKey, TargetKey, MemberKey, RegexKey, TargetEpochKey, EpochKey)
_WRITTEN_FIRST: Final = (MemberKey, RegexKey, EpochKey, TargetKey, TargetEpochKey, CurrentKey)
"""The order in which Kafka replays them: a member before its target and current assignment."""


@dataclass(slots=True, eq=False)
class MemberSession:
    """The soft state of a member."""

    deadline_ms: int = 0
    timer_ms: int | None = None
    """The time of its timer, which may be earlier than the deadline: heartbeats set none."""
    revoking: object = None
    """The partitions that it has to give up."""
    revoke_by_ms: int | None = None
    """When it is removed unless it has given up its partitions."""


class Resolution(NamedTuple):
    """The topics that a regular expression matched."""

    topics: tuple[str, ...]
    version: int
    """The version of the topics that were looked at."""
    at_ms: int


class ConsumerGroup:
    """State, what waits for it, and the sessions of members."""

    def __init__(self, group_id: str, state: ConsumerState) -> None:
        self.group_id = group_id
        self.state = state
        self.changes: dict[tuple[type, ConsumerKey], ConsumerValue | None] = {}
        """The records of this turn. Keys of two types may be equal."""
        self.must_bump = False
        """Whether this turn begins a new epoch."""
        self.token: int | None = None
        """The append under way, or `ASSIGNING`."""
        self.assigning: Iterator[None] | None = None
        """The steps in which a target is made."""
        self.then: Callable[[Now], Effects] | None = None
        """The end of the turn, called when all steps were taken."""
        self.is_in_doubt = False
        """Whether the append under way has failed and may still be committed."""
        self.becomes_classic = False
        """Whether the append under way ends it: the group becomes a classic one."""
        self.answers: list[tuple[int, GroupRequest, GroupAnswer]] = []
        """Answers that wait for it."""
        self.queue: dict[int, GroupRequest] = {}
        """Requests that wait for it, in the order of their arrival."""
        self.due: list[TimerKey] = []
        """Timers that have fired meanwhile."""
        self.sessions: dict[str, MemberSession] = {}
        self.topics_version: int | None = None
        """The version of the topics with which the epoch's hash was last compared."""
        self.resolutions: dict[str, Resolution] = {}
        """The topics found for each regular expression; not stored."""
        self.must_match = True
        """Whether the stored topics of regular expressions may have to change."""
        self.resolving: dict[str, dict[int, GroupRequest]] = {}
        """Regular expressions that are being resolved, each with the members that join with it."""
        self._subscribed: frozenset[str] | None = None

    @property
    def has_members(self) -> bool:
        return bool(self.state.members)

    @property
    def has_waiting(self) -> bool:
        """Whether requests wait, topics are being matched, or a target is being made."""
        return bool(self.queue or self.resolving or self.assigning)

    def put(self, key: ConsumerKey, value: ConsumerValue | None) -> None:
        """Change the state; the record is appended at the end of the turn."""
        if self.state.get(key) == value:
            return
        self.state.put(key, value)
        self.changes.pop((type(key), key), None)
        self.changes[type(key), key] = value
        if isinstance(key, MemberKey | RegexKey):
            self._subscribed = None
            self.topics_version = None
            self.must_match = True

    def take_changes(self) -> list[tuple[ConsumerKey, ConsumerValue | None]]:
        """The records of this turn."""
        changes = [(key, value) for (_, key), value in self.changes.items()]
        self.changes = {}
        removed = [one for one in changes if one[1] is None]
        written = [one for one in changes if one[1] is not None]
        removed.sort(key=lambda one: _REMOVED_FIRST.index(type(one[0])))
        written.sort(key=lambda one: _WRITTEN_FIRST.index(type(one[0])))
        return removed + written

    def topics_of(self, member_id: str) -> frozenset[str]:
        """The topics that a member subscribes to by name and by regular expression."""
        value = self.state.members[member_id]
        regex = self.state.regexes.get(value.topic_regex or "")
        return frozenset(value.topic_names) | frozenset(regex.topics if regex else ())

    def subscribed(self) -> frozenset[str]:
        """The topics that any member subscribes to."""
        if self._subscribed is None:
            self._subscribed = frozenset(self.state.subscribed)
        return self._subscribed

    def is_free_for(self, member_id: str, partition: TopicIdPartition) -> bool:
        """Whether no other member has the partition."""
        return self.state.owners.get(partition, member_id) == member_id

    @property
    def condition(self) -> str:
        """The group's state, in Kafka's words."""
        state = self.state
        if not state.members:
            return "Empty"
        if state.number > state.target_epoch:
            return "Assigning"
        for current in state.currents.values():
            if (
                current.state is not ConsumerMemberState.STABLE
                or current.epoch != state.target_epoch
            ):
                return "Reconciling"
        return "Stable"
