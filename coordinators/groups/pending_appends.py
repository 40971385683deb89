"""The appends of a coordinator that may still be committed, each with what follows its outcome."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from echoless.coordinators.effects import AppendRecords, InTransaction
from echoless.coordinators.events import Now
from echoless.coordinators.groups.effects import Effects
from echoless.coordinators.groups.group import Group
from echoless.coordinators.groups.records import GroupRecord, packed
from echoless.coordinators.groups.requests import PreparedOffsets
from echoless.coordinators.groups.shares import GroupShares
from echoless.coordinators.groups.usage import NOTHING, Usage, negative, plus, value_size
from echoless.protocol.errors import ErrorCode
from echoless.protocol.state_records.group_keys import MemberKey, OffsetKey

Continuation = Callable[[ErrorCode, Now], Effects]
"""The rest of the work, called once: with NONE when an append is committed, else with its error."""


class PendingAppend:
    """Records of a group whose append has not ended. Written out, because there is one for every commit."""

    __slots__ = ("continuation", "group", "records", "share", "transaction", "usage")

    def __init__(
        self,
        group: Group,
        records: Sequence[GroupRecord],
        continuation: Continuation | None,
        usage: Usage,
        share: Usage,
        *,
        transaction: InTransaction | None = None,
    ) -> None:
        self.group = group
        self.records = records
        self.continuation = continuation
        """None once it was called: the append failed, and may still be committed."""
        self.usage = usage
        """The amount that it adds to what is held."""
        self.share = share
        """The part of it that counts towards the group's sharer; that of its members is theirs."""
        self.transaction = transaction


class PendingAppends:
    """Appends by their tokens, in order, and what groups know of them."""

    def __init__(self, shares: GroupShares) -> None:
        self._shares = shares
        self.last_token = 0
        self.usage = Usage()
        """The amount of what is being stored."""
        self._pending: dict[int, PendingAppend] = {}

    def __contains__(self, token: int) -> bool:
        """Whether an append is neither committed nor refused."""
        return token in self._pending

    @property
    def oldest_token(self) -> int:
        """The token of the oldest append that may still be committed; without one, that of the next append."""
        return next(iter(self._pending), self.last_token + 1)

    def begin(
        self,
        group: Group,
        records: Sequence[GroupRecord],
        continuation: Continuation,
        usage: Usage | None = None,
        prepared: PreparedOffsets | None = None,
        *,
        transaction: InTransaction | None = None,
    ) -> AppendRecords:
        """Append records of a group; `continuation` is called in a later step.

        `usage` is what they add to what is held; None if there are no offsets among them. `prepared`: the same records, packed.
        `transaction`: the records are offsets that count once it is committed.
        """
        self.last_token += 1
        group.appends += 1
        share = usage
        if usage is None or share is None:
            usage, share = _usage(records)
        append = PendingAppend(group, records, continuation, usage, share, transaction=transaction)
        self._pending[self.last_token] = append
        if usage is not NOTHING:
            self._count(append, usage, share)
        _note_offsets(group, records)
        if prepared is not None:
            return AppendRecords(self.last_token, prepared.packed, prepared.batch, transaction)
        states = tuple([packed(record) for record in records])
        return AppendRecords(self.last_token, states, transaction=transaction)

    def end(self, token: int) -> PendingAppend:
        """Forget an append, which is committed or never will be."""
        ended = self._pending.pop(token)
        group = ended.group
        group.appends -= 1
        if ended.usage is not NOTHING:
            self._count(ended, negative(ended.usage), negative(ended.share))
        for key, _ in ended.records:
            if isinstance(key, OffsetKey):
                place = (key.topic, key.partition)
                group.pending_offsets[place] -= 1
                if not group.pending_offsets[place]:
                    del group.pending_offsets[place]
        return ended

    def hand_over(self, group: Group, last_token: int) -> None:
        """Give the appends of the group to this object of it; nothing follows their outcome. Forget later ones."""
        for token, append in list(self._pending.items()):
            if append.group.group_id != group.group_id:
                continue
            if token > last_token:
                del self._pending[token]
                self._count(append, negative(append.usage), negative(append.share))
                continue
            append.group, append.continuation = group, None
            group.appends += 1
            _note_offsets(group, append.records)

    def fail(self, token: int, *, may_commit: bool) -> tuple[PendingAppend, Continuation | None]:
        """Take what follows an append that has failed. One that may be committed is kept."""
        failed = self._pending[token]
        continuation, failed.continuation = failed.continuation, None
        if not may_commit:
            self.end(token)
        return failed, continuation

    def _count(self, append: PendingAppend, change: Usage, of_group: Usage) -> None:
        self.usage = plus(self.usage, change)
        if any(of_group):
            self._shares.change(append.group.group_id, of_group)


def _usage(records: Sequence[GroupRecord]) -> tuple[Usage, Usage]:
    """The bytes of records, and those of them that are not a member's own."""
    size = sum([value_size(value) for _, value in records])
    of_members = sum([value_size(value) for key, value in records if type(key) is MemberKey])
    return Usage(size=size), Usage(size=size - of_members)


def _note_offsets(group: Group, records: Sequence[GroupRecord]) -> None:
    for key, _ in records:
        if isinstance(key, OffsetKey):
            place = (key.topic, key.partition)
            group.pending_offsets[place] = group.pending_offsets.get(place, 0) + 1
