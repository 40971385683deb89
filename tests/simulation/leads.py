"""The leader epochs that a broker leads, as it notifies its listeners of them."""

from __future__ import annotations

import itertools
from typing import NamedTuple

from echoless.broker.broker import Broker
from echoless.broker.partitions.partition import Partition
from tests.simulation.observations import Spot

NONE = -1


class Mark(NamedTuple):
    """A moment in the life of a leader."""

    roles: int
    doubts: int
    is_certain: bool


class Leads:
    """A `RoleListener` that remembers."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._epochs: dict[Spot, list[int]] = {}
        """The epoch of each role in turn, `NONE` while another broker leads, or no one."""
        for partition in broker.partitions.values():
            self._note(partition)
        broker.services.partitions.listen(self)

    def led(self, partition: Partition, epoch: int) -> None:
        self._note(partition)

    def lost(self, partition: Partition) -> None:
        self._note(partition)

    def _note(self, partition: Partition) -> None:
        epochs = self._epochs.setdefault(Spot(partition.topic, partition.index), [])
        epochs.append(partition.leader_epoch if partition.is_leader else NONE)

    def mark(self, spot: Spot) -> Mark:
        """The present moment, for `leads_on`."""
        roles = len(self._epochs.get(spot, ()))
        doubts = self._broker.metrics.leadership_doubts_total
        return Mark(roles, doubts, self._broker.membership.is_proved)

    def leads_on(self, spot: Spot, since: Mark) -> bool:
        """Whether the broker has certainly led the partition ever since: in each leader epoch, and without doubt."""
        epochs = self._epochs.get(spot, [])[max(0, since.roles - 1) :]
        is_unbroken = NONE not in epochs and all(
            after == before + 1 for before, after in itertools.pairwise(epochs)
        )
        is_certain = since.is_certain and self.mark(spot).doubts == since.doubts
        return is_certain and is_unbroken
