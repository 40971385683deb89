"""Chooses the leased id for a partition's batches: between its `Sequencer` and the `LeaseKeeper`.

The sequencer is held while there is no id for records never sent: before the first lease has
arrived, when the next one has and batches under the old one are still outstanding, and after the
end of a lease that no other has followed. A sent batch keeps its id and is retried for as long as
brokers know it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from echoless.client.answers import PartitionProduceResponse
from echoless.client.cluster import NoLeaderError
from echoless.client.lease import Lease
from echoless.client.lease_keeper import LeaseKeeper
from echoless.client.sequenced_batch import Identity
from echoless.client.sequencer import Phase, Sequencer
from echoless.client.sequencer_actions import Action, Failure
from echoless.client.topic_partition import TopicPartition
from echoless.protocol.sequence import NO_PRODUCER_EPOCH, NO_PRODUCER_ID

NO_IDENTITY: Final = Identity(NO_PRODUCER_ID, NO_PRODUCER_EPOCH)
"""A sequencer's initial identity; nothing is sent under it."""


class LeasedPartition:
    """One partition of one producer. Used by its sender's task."""

    def __init__(
        self, keeper: LeaseKeeper, partition: TopicPartition, sequencer: Sequencer
    ) -> None:
        assert sequencer.identity == NO_IDENTITY, "a leased producer is not resumed"
        self._keeper = keeper
        self._partition = partition
        self._sequencer = sequencer
        self._lease: Lease | None = None
        """The current one."""
        sequencer.is_held = True

    def begin(self) -> None:
        """Requests the first lease; the topic should exist."""
        self._keeper.add(self._partition)

    def update(self) -> Sequence[Action]:
        """Takes a lease that has arrived; fails batches left without one. Call before each step."""
        sequencer = self._sequencer
        if sequencer.is_idle or sequencer.phase is Phase.AWAITING_ID:
            return []
        if sequencer.has_sent and not sequencer.in_flight and not self._may_resend():
            return sequencer.on_overdue(Failure.LEASE_OVER)
        lease = self._keeper.may_send(self._partition, has_outstanding=sequencer.has_sent)
        was_held, sequencer.is_held = sequencer.is_held, lease is None
        if lease is None:
            if not was_held:
                self._keeper.look()
            return self._refused()
        if lease is self._lease:
            return []
        self._lease = lease
        return sequencer.begin_anew(lease.identity)

    def new_identity(self) -> Identity:
        """The identity of another lease, to replace one that is no longer usable.

        Raises `NoLeaderError`.
        """
        if self._lease is not None:
            self._lease = None
            self._keeper.add(self._partition)
        self._lease = self._keeper.may_send(self._partition, has_outstanding=False)
        if self._lease is None:
            raise NoLeaderError("no producer id is leased yet")
        return self._lease.identity

    def _may_resend(self) -> bool:
        return self._lease is not None and self._keeper.may_resend(self._lease)

    def _refused(self) -> Sequence[Action]:
        refusal = self._keeper.refusal(self._partition)
        if refusal is None or self._sequencer.has_sent:
            return []
        return self._sequencer.on_no_id(
            PartitionProduceResponse(refusal.code, message=f"lease_pid: {refusal}")
        )
