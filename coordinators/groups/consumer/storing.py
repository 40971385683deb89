"""The append of what a turn of a consumer group has changed, and the answers that wait for it.

Invariant: nothing is answered from a change that is not committed; while one is under way, requests of the group wait.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from echoless.coordinators.append_errors import coordinator_code
from echoless.coordinators.effects import LogLine, Reply
from echoless.coordinators.events import Now
from echoless.coordinators.groups.answers import GroupAnswer, refusal
from echoless.coordinators.groups.classic import membership
from echoless.coordinators.groups.consumer import parking, sessions
from echoless.coordinators.groups.consumer.group import ConsumerGroup
from echoless.coordinators.groups.consumer.requests import (
    JOINS,
    ConsumerHeartbeat,
    ConsumerHeartbeatAnswer,
)
from echoless.coordinators.groups.consumer.sessions import ConsumerSessions
from echoless.coordinators.groups.consumer.state import ConsumerState
from echoless.coordinators.groups.effects import Effects
from echoless.coordinators.groups.group import CONSUMER, Group
from echoless.coordinators.groups.log_names import shown
from echoless.coordinators.groups.records import GroupRecord
from echoless.coordinators.groups.requests import GroupRequest
from echoless.coordinators.groups.store import GroupStore
from echoless.protocol.errors import ErrorCode
from echoless.protocol.state_records.classic_group_value import GroupValue
from echoless.protocol.state_records.group_keys import GroupKey

Answers = Sequence[tuple[int, GroupRequest, GroupAnswer]]
Dispatch = Callable[[int, GroupRequest, Now], Effects]
"""Takes a request that has waited."""
_TOO_LARGE: Final = (
    "The change takes more bytes than one batch may have: let members subscribe to fewer topics by name, "
    "or raise max.message.bytes of __consumer_offsets."
)


class Storing:
    """Stores what turns change: one append of a group at a time."""

    def __init__(self, sessions: ConsumerSessions, dispatch: Dispatch) -> None:
        self._sessions = sessions
        self._dispatch = dispatch

    def must_wait(
        self, store: GroupStore, reply_id: int, request: GroupRequest, now: Now
    ) -> Effects | None:
        """Let the request wait for an append of its group; one in doubt is waited for no longer.

        Returns None if there is none to wait for.
        """
        group = store.live.get(request.group_id)
        consumer = group.consumer if group is not None else None
        if consumer is None or consumer.token is None:
            return None
        if isinstance(request, ConsumerHeartbeat) and request.member_epoch >= JOINS:
            self._sessions.prolong(consumer, request.member_id, now)
        if consumer.is_in_doubt:
            return [Reply(reply_id, refusal(request, ErrorCode.COORDINATOR_NOT_AVAILABLE))]
        parking.park(store, consumer, reply_id, request)
        return []

    def finish(
        self, store: GroupStore, group: Group, consumer: ConsumerGroup, answers: Answers
    ) -> Effects:
        """Append what the turn has changed, and keep the answers until that is committed."""
        changes = consumer.take_changes()
        if not changes:
            if not (_is_stored(store, group) or consumer.has_members or consumer.has_waiting):
                group.consumer = None
            return [Reply(reply_id, answer) for reply_id, _, answer in answers]
        records: list[GroupRecord] = []
        effects: Effects = []
        if not _is_stored(store, group):
            records += _end_of_classic(store, group)
            effects += _end_of_ids(store, group)
        consumer.answers = list(answers)
        return effects + self._append(store, group, consumer, [*records, *changes])

    def become_classic(
        self, store: GroupStore, group: Group, consumer: ConsumerGroup, now: Now
    ) -> Effects:
        """Remove the records of a group without members; its generations follow its epochs."""
        consumer.becomes_classic = True
        value = GroupValue(CONSUMER, consumer.state.number, None, None, now.wall_ms, ())
        records: list[GroupRecord] = [(key, None) for key in consumer.state.keys(group.group_id)]
        records.append((GroupKey(group.group_id), value))
        return self._append(store, group, consumer, records)

    def _append(
        self, store: GroupStore, group: Group, consumer: ConsumerGroup, records: list[GroupRecord]
    ) -> Effects:
        stored = partial(self._stored, store, group, consumer)
        append = store.appends.begin(group, records, stored)
        consumer.token = append.token
        return [append]

    # --- the outcome

    def _stored(
        self, store: GroupStore, group: Group, consumer: ConsumerGroup, code: ErrorCode, now: Now
    ) -> Effects:
        """Answer with the error if the append has failed; go back to what is committed, unless it may be yet."""
        if code is ErrorCode.NONE:
            return []
        name = shown(group.group_id)
        effects: Effects = [LogLine(f"a change of group {name} was not stored: {code.name}")]
        if code is ErrorCode.MESSAGE_TOO_LARGE:
            effects.append(LogLine(f"group {name}: {_TOO_LARGE}"))
        answers, consumer.answers = consumer.answers, []
        effects += [Reply(reply_id, _failure(request, code)) for reply_id, request, _ in answers]
        effects += parking.refuse_queued(store, consumer)
        if consumer.token is not None and consumer.token in store.appends:
            consumer.is_in_doubt = True
            return effects
        return effects + self._undo(store, group, consumer, now)

    def _undo(self, store: GroupStore, group: Group, consumer: ConsumerGroup, now: Now) -> Effects:
        effects = parking.refuse_all(store, consumer)
        store.members -= len(consumer.state.members)
        store.shares.drop_members(group.group_id)
        for member_id in list(consumer.sessions):
            effects += sessions.end(consumer, member_id)
        group.consumer = None
        durable = store.durable.groups.get(group.group_id)
        if durable is not None and durable.consumer is not None:
            effects += self.load(store, group, durable.consumer, now)
        return effects

    def load(self, store: GroupStore, group: Group, stored: ConsumerState, now: Now) -> Effects:
        """Serve a group from what is committed of it. All sessions begin anew."""
        consumer = group.consumer = ConsumerGroup(group.group_id, stored.copy())
        store.members += len(stored.members)
        effects: Effects = []
        for member_id in stored.members:
            effects += self._sessions.extend(consumer, member_id, now)
        return effects

    def committed(
        self, store: GroupStore, group: Group, consumer: ConsumerGroup, now: Now
    ) -> Effects:
        """Answer what has waited for the group's append."""
        consumer.token, consumer.is_in_doubt = None, False
        answers, consumer.answers = consumer.answers, []
        effects: Effects = [Reply(reply_id, answer) for reply_id, _, answer in answers]
        if consumer.becomes_classic:
            group.consumer = None
            group.generation_id = consumer.state.number
            parking.unpark_all(consumer)
            for reply_id in list(consumer.queue):
                request = parking.take(store, consumer, reply_id)
                effects += self._dispatch(reply_id, request, now)
        return effects


def _is_stored(store: GroupStore, group: Group) -> bool:
    durable = store.durable.groups.get(group.group_id)
    return durable is not None and durable.consumer is not None


def _end_of_classic(store: GroupStore, group: Group) -> list[GroupRecord]:
    """The end of the classic group that it was."""
    group.protocol_type = group.protocol_name = None
    durable = store.durable.groups.get(group.group_id)
    is_known = group.appends or (durable is not None and durable.value is not None)
    return [(GroupKey(group.group_id), None)] if is_known else []


def _end_of_ids(store: GroupStore, group: Group) -> Effects:
    """Forget the ids that were handed out for the classic group that it was."""
    effects: Effects = []
    for member_id in list(group.pending_members):
        effects += membership.take_back(store, group, member_id)
    return effects


def _failure(request: GroupRequest, code: ErrorCode) -> GroupAnswer:
    if code is ErrorCode.MESSAGE_TOO_LARGE and isinstance(request, ConsumerHeartbeat):
        return ConsumerHeartbeatAnswer(coordinator_code(code), _TOO_LARGE)
    return refusal(request, coordinator_code(code))
