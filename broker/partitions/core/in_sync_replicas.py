"""A leader's view of its followers: how far each has come, and which are in sync.

One object per partition and leader epoch. The in-sync replicas (ISR) are those that the leader
counts on: an offset is committed when all of them have it. The ISR is kept in the partition's state
node, and only a conditional write changes it, so between the decision and the answer either of two
sets may be in force. What is committed is judged by their union.

Invariant: `largest` holds every replica that any reader of the state node may find in sync. Pure:
times are seconds of the caller's clock, and only differences count.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Final

UNKNOWN_OFFSET: Final = -1


@dataclass(slots=True, repr=False, eq=False)
class FollowerProgress:
    """One follower, as its fetches show it."""

    caught_up_s: float
    """When it last had everything that the leader had at that time."""
    broker_epoch: int = -1
    """The broker epoch that the follower fetched with (`LiveBroker.session_id`)."""
    log_end_offset: int = UNKNOWN_OFFSET
    fetched_s: float = 0.0
    leader_end_at_fetch: int = 0

    def note_fetch(self, offset: int, leader_end_offset: int, now_s: float) -> None:
        """The follower has everything below `offset`, which is what it asks for next.

        A fetch that was delayed may report less than is known already.
        """
        if offset >= leader_end_offset:
            self.caught_up_s = now_s
        elif self.fetched_s and offset >= self.leader_end_at_fetch:
            # It now has all that the leader had when it last asked.
            self.caught_up_s = max(self.caught_up_s, self.fetched_s)
        self.log_end_offset = max(self.log_end_offset, offset)
        self.fetched_s = now_s
        self.leader_end_at_fetch = leader_end_offset

    def note_silence(self, offset: int, heard_s: float) -> None:
        """The follower was heard at `heard_s`, when the leader's log ended at `offset`, and had said that it has that."""
        if heard_s >= self.fetched_s and self.log_end_offset >= offset:
            self.caught_up_s = max(self.caught_up_s, heard_s)
            self.fetched_s = heard_s
            self.leader_end_at_fetch = offset


class InSyncReplicas:
    """The followers of one partition during one leader epoch, and its ISR."""

    def __init__(
        self,
        leader_id: int,
        replicas: Collection[int],
        isr: tuple[int, ...],
        *,
        epoch_start_offset: int,
        now_s: float,
    ) -> None:
        self.isr = isr
        """The ISR of the state node, as far as this leader knows."""
        self.pending: tuple[int, ...] | None = None
        """Members of an ISR that is being written, or whose write had an unknown outcome."""
        self.epoch_start_offset = epoch_start_offset
        self._leader_id = leader_id
        self._followers: dict[int, FollowerProgress] = {}
        self.change_replicas(replicas, now_s)
        self._set_largest()

    def change_replicas(self, replicas: Collection[int], now_s: float) -> None:
        """Applies a reassignment; what is known of the remaining replicas is kept."""
        self._followers = {
            broker_id: self._followers.get(broker_id) or FollowerProgress(now_s)
            for broker_id in replicas
            if broker_id != self._leader_id
        }

    def excuse(self, duration_s: float, now_s: float) -> None:
        """Excuses followers: for `duration_s` up to now, the leader kept them from catching up."""
        for follower in self._followers.values():
            follower.caught_up_s = min(follower.caught_up_s + duration_s, now_s)

    def _set_largest(self) -> None:
        members = dict.fromkeys((*self.isr, *(self.pending or ())))
        members.pop(self._leader_id, None)
        self.largest = tuple(members)
        """The followers that an offset has to reach to be committed."""

    # --- progress ---

    def note_fetch(
        self, broker_id: int, broker_epoch: int, offset: int, leader_end_offset: int, now_s: float
    ) -> None:
        """Notes a fetch in this leader epoch, by the follower's registered broker epoch."""
        follower = self._followers[broker_id]
        if follower.broker_epoch != broker_epoch:
            # Another broker epoch: what the earlier one had may be lost.
            follower = FollowerProgress(follower.caught_up_s, broker_epoch)
            self._followers[broker_id] = follower
        follower.note_fetch(offset, leader_end_offset, now_s)

    def note_silence(self, broker_id: int, broker_epoch: int, offset: int, heard_s: float) -> None:
        """Notes what a fetch from `offset` at `heard_s` would have said, which the follower's silence says as well.

        Called before anything changes that: an append, the end of its session.
        """
        follower = self._followers.get(broker_id)
        if follower is not None and follower.broker_epoch == broker_epoch:
            follower.note_silence(offset, heard_s)

    def log_end_offset(self, broker_id: int) -> int:
        """The follower's known log end offset; -1 before its first fetch in this epoch."""
        follower = self._followers.get(broker_id)
        return UNKNOWN_OFFSET if follower is None else follower.log_end_offset

    def broker_epoch(self, broker_id: int) -> int:
        """The broker epoch the follower fetched with; -1 before its first fetch in this epoch."""
        follower = self._followers.get(broker_id)
        return -1 if follower is None else follower.broker_epoch

    def committed_offset(self, own_offset: int) -> int:
        """The offset below which all in-sync replicas have everything; -1 while one is unknown."""
        committed, followers = own_offset, self._followers
        for broker_id in self.largest:
            follower = followers.get(broker_id)
            offset = UNKNOWN_OFFSET if follower is None else follower.log_end_offset
            committed = min(committed, offset)
        return committed

    def is_level(self, leader_end_offset: int) -> bool:
        """Whether all replicas are in sync, and known to have all that the leader has.

        Then time alone changes nothing: `wanted` differs from the ISR only once a broker is gone.
        """
        return (
            self.pending is None
            and len(self.isr) > len(self._followers)
            and self.committed_offset(leader_end_offset) >= leader_end_offset
        )

    # --- the ISR and its changes ---

    def wanted(
        self,
        *,
        leader_end_offset: int,
        high_watermark: int,
        lag_max_s: float,
        now_s: float,
        registered_epoch: Callable[[int], int | None],
    ) -> tuple[int, ...]:
        """The ISR as it should be, in the order of the present one, newcomers at the end.

        `registered_epoch` returns the epoch of a broker that is registered and not about to leave.
        """

        def lags(follower: FollowerProgress) -> bool:
            is_behind = follower.log_end_offset < leader_end_offset
            return is_behind and now_s - follower.caught_up_s > lag_max_s

        def stays(broker_id: int) -> bool:
            if broker_id == self._leader_id:
                return True
            follower = self._followers.get(broker_id)
            if follower is None or registered_epoch(broker_id) is None:
                return False
            return not lags(follower)

        def joins(broker_id: int, follower: FollowerProgress) -> bool:
            # The start of the epoch too: below it the high watermark may not be the last leader's.
            least = max(high_watermark, self.epoch_start_offset)
            return (
                follower.log_end_offset >= least
                and not lags(follower)  # it would have to leave again at once
                and registered_epoch(broker_id) == follower.broker_epoch
            )

        kept = [broker_id for broker_id in self.isr if stays(broker_id)]
        new = [
            broker_id
            for broker_id, follower in self._followers.items()
            if broker_id not in self.isr and joins(broker_id, follower)
        ]
        return (*kept, *new)

    def begin_change(self, isr: tuple[int, ...]) -> None:
        """Notes that `isr` is about to be written: from now on either set may be in force.

        Call it in the same step as `wanted`: a newcomer that does not count yet may fall behind
        again.
        """
        self.pending = tuple(dict.fromkeys((*(self.pending or ()), *isr)))
        self._set_largest()

    def take_back_change(self, pending: tuple[int, ...] | None) -> None:
        """Undoes `begin_change`, whose ISR will not be written: `pending` is what was before."""
        if self.pending is not None:  # else it has been settled meanwhile
            self.pending = pending
            self._set_largest()

    def settle(self, isr: tuple[int, ...]) -> None:
        """Notes that the state node has this ISR and no earlier write can land any more."""
        self.isr = isr
        self.pending = None
        self._set_largest()
