"""The append of what a turn of a consumer group has changed, and what waits for it.

Invariant: nothing is answered from a change that is not committed; while one is under way, requests of the group wait.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from echoless.coordinators.groups.answers import GroupAnswer, refusal
from echoless.coordinators.groups.append_errors import group_code
from echoless.coordinators.groups.consumer.group import ConsumerGroup
from echoless.coordinators.groups.consumer.requests import (
    JOINS,
    ConsumerHeartbeat,
    ConsumerHeartbeatAnswer,
)
from echoless.coordinators.groups.consumer.sessions import ConsumerSessions
from echoless.coordinators.groups.consumer.state import ConsumerState
from echoless.coordinators.groups.group import Group
from echoless.coordinators.groups.groups import Groups, Record
from echoless.coordinators.groups.log_names import shown
from echoless.coordinators.groups.membership import Membership
from echoless.coordinators.groups.requests import GroupRequest
from echoless.protocol.errors import ErrorCode
from echoless.protocol.state_records.classic_group_value import GroupValue
from echoless.protocol.state_records.group_keys import GroupKey

Answers = Sequence[tuple[int, GroupRequest, GroupAnswer]]
CONSUMER_TYPE = "consumer"
_TOO_LARGE: Final = (
    "The change takes more bytes than one batch may have: let members subscribe to fewer topics by name, "
    "or raise max.message.bytes of __consumer_offsets."
)


class Storing:
    """The appends under way of the consumer groups of a coordinator."""

    def __init__(
        self,
        groups: Groups,
        membership: Membership,
        sessions: ConsumerSessions,
        dispatch: Callable[[int, GroupRequest], None],
    ) -> None:
        """`dispatch` takes a request that has waited."""
        self._groups = groups
        self._membership = membership
        self._sessions = sessions
        self.dispatch = dispatch
        self._parked: dict[int, ConsumerGroup] = {}
        """The groups of requests that wait."""

    # --- requests that wait

    def must_wait(self, reply_id: int, request: GroupRequest) -> bool:
        """Whether the request waits for an append of its group; one in doubt is waited for no longer."""
        group = self._groups.live.get(request.group_id)
        consumer = group.consumer if group is not None else None
        if consumer is None or consumer.token is None:
            return False
        if isinstance(request, ConsumerHeartbeat) and request.member_epoch >= JOINS:
            self._sessions.prolong(consumer, request.member_id)
        if consumer.is_in_doubt:
            self._refuse(reply_id, request, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        else:
            self.park(consumer, reply_id, request)
        return True

    def park(self, consumer: ConsumerGroup, reply_id: int, request: GroupRequest) -> None:
        """Let a request wait in the queue of its group."""
        consumer.queue[reply_id] = request
        self._parked[reply_id] = consumer

    def park_until_resolved(
        self, consumer: ConsumerGroup, pattern: str, reply_id: int, request: GroupRequest
    ) -> None:
        """Let a request wait until the topics of a regular expression are known."""
        consumer.resolving[pattern][reply_id] = request
        self._parked[reply_id] = consumer

    def unpark_resolved(self, consumer: ConsumerGroup, pattern: str) -> None:
        """Let those that have waited for the expression wait in the queue, as the last ones."""
        consumer.queue |= consumer.resolving.pop(pattern, {})

    def take(self, consumer: ConsumerGroup, reply_id: int) -> GroupRequest:
        """A request, which waits no more."""
        del self._parked[reply_id]
        return consumer.queue.pop(reply_id)

    def abandon(self, reply_id: int) -> None:
        """Drop a request that waits: its client has gone, and may have sent it again. One to leave counts."""
        consumer = self._parked.get(reply_id)
        if consumer is not None and not _leaves(consumer.queue.get(reply_id)):
            del self._parked[reply_id]
            consumer.queue.pop(reply_id, None)
            for waiting in consumer.resolving.values():
                waiting.pop(reply_id, None)

    def _refuse(self, reply_id: int, request: GroupRequest, code: ErrorCode) -> None:
        self._groups.reply(reply_id, refusal(request, code))

    # --- appends

    def finish(self, group: Group, consumer: ConsumerGroup, answers: Answers) -> None:
        """Append what the turn has changed, and keep the answers until that is committed."""
        changes = consumer.take_changes()
        if not changes:
            for reply_id, _, answer in answers:
                self._groups.reply(reply_id, answer)
            if not (self._is_stored(group) or consumer.has_members or consumer.has_waiting):
                group.consumer = None
            return
        records: list[Record] = []
        if not self._is_stored(group):
            records += self._end_of_classic(group)
        records += changes
        consumer.answers = list(answers)
        self._append(group, consumer, records)

    def become_classic(self, group: Group, consumer: ConsumerGroup) -> None:
        """Remove the records of a group without members; its generations follow its epochs."""
        consumer.becomes_classic = True
        value = GroupValue(
            CONSUMER_TYPE, consumer.state.number, None, None, self._groups.now.wall_ms, ()
        )
        records: list[Record] = [(key, None) for key in consumer.state.keys(group.group_id)]
        self._append(group, consumer, [*records, (GroupKey(group.group_id), value)])

    def _append(self, group: Group, consumer: ConsumerGroup, records: list[Record]) -> None:
        outcome = partial(self._stored, group, consumer)
        consumer.token = self._groups.append(group, records, outcome)

    def _is_stored(self, group: Group) -> bool:
        durable = self._groups.durable.groups.get(group.group_id)
        return durable is not None and durable.consumer is not None

    def _end_of_classic(self, group: Group) -> list[Record]:
        """The end of the classic group that it was: its ids that were handed out, and its record."""
        for member_id in list(group.pending_members):
            self._membership.take_back(group, member_id)
        group.protocol_type = group.protocol_name = None
        durable = self._groups.durable.groups.get(group.group_id)
        is_known = group.appends or (durable is not None and durable.value is not None)
        return [(GroupKey(group.group_id), None)] if is_known else []

    def _stored(self, group: Group, consumer: ConsumerGroup, code: ErrorCode) -> None:
        """Answer with the error if the append has failed; go back to what is committed, unless it may be yet."""
        if code is ErrorCode.NONE:
            return
        self._groups.note(f"a change of group {shown(group.group_id)} was not stored: {code.name}")
        if code is ErrorCode.MESSAGE_TOO_LARGE:
            self._groups.note(f"group {shown(group.group_id)}: {_TOO_LARGE}")
        answers, consumer.answers = consumer.answers, []
        for reply_id, request, _ in answers:
            if code is ErrorCode.MESSAGE_TOO_LARGE and isinstance(request, ConsumerHeartbeat):
                refused = ConsumerHeartbeatAnswer(group_code(code), _TOO_LARGE)
                self._groups.reply(reply_id, refused)
            else:
                self._refuse(reply_id, request, group_code(code))
        self._refuse_queued(consumer)
        if consumer.token is not None and self._groups.may_commit(consumer.token):
            consumer.is_in_doubt = True
        else:
            self._undo(group, consumer)

    def refuse_waiting(self, consumer: ConsumerGroup) -> None:
        """Refuse all requests that wait: what they wait for is no more."""
        self._unpark_all(consumer)
        self._refuse_queued(consumer)

    def _refuse_queued(self, consumer: ConsumerGroup) -> None:
        for reply_id in list(consumer.queue):
            request = self.take(consumer, reply_id)
            self._refuse(reply_id, request, ErrorCode.COORDINATOR_NOT_AVAILABLE)

    def _unpark_all(self, consumer: ConsumerGroup) -> None:
        for pattern in list(consumer.resolving):
            self.unpark_resolved(consumer, pattern)

    def _undo(self, group: Group, consumer: ConsumerGroup) -> None:
        self.refuse_waiting(consumer)
        self._groups.members -= len(consumer.state.members)
        for member_id in list(consumer.sessions):
            self._sessions.end(consumer, member_id)
        group.consumer = None
        durable = self._groups.durable.groups.get(group.group_id)
        if durable is not None and durable.consumer is not None:
            self.load(group, durable.consumer)

    def load(self, group: Group, stored: ConsumerState) -> None:
        """Serve a group from what is committed of it. All sessions begin anew."""
        consumer = group.consumer = ConsumerGroup(group.group_id, stored.copy())
        self._groups.members += len(stored.members)
        for member_id in stored.members:
            self._sessions.extend(consumer, member_id)

    def committed(self, group: Group, token: int) -> ConsumerGroup | None:
        """Answer what has waited for this append. Returns the group's consumer part, if it was one of that."""
        consumer = group.consumer
        if consumer is None or consumer.token != token:
            return None
        consumer.token, consumer.is_in_doubt = None, False
        answers, consumer.answers = consumer.answers, []
        for reply_id, _, answer in answers:
            self._groups.reply(reply_id, answer)
        if consumer.becomes_classic:
            group.consumer = None
            group.generation_id = consumer.state.number
            self._unpark_all(consumer)
            for reply_id in list(consumer.queue):
                self.dispatch(reply_id, self.take(consumer, reply_id))
        return consumer


def _leaves(request: GroupRequest | None) -> bool:
    return isinstance(request, ConsumerHeartbeat) and request.member_epoch < JOINS
