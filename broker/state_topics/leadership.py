"""One leader epoch of a partition, in which this broker leads it: what a shard begins and ends with."""

from __future__ import annotations

from typing import NamedTuple, Self

from echoless.broker.partitions.partition import Partition
from echoless.protocol.errors import ErrorCode, KafkaError


class Leadership(NamedTuple):
    """The leadership of a partition in one leader epoch."""

    partition: Partition
    leader_epoch: int

    @classmethod
    def of(cls, partition: Partition) -> Self:
        """The leadership that has just begun."""
        return cls(partition, partition.leader_epoch)

    @property
    def is_held(self) -> bool:
        """Whether this broker still leads in this very epoch, though perhaps in doubt."""
        return self.partition.is_leader and self.partition.leader_epoch == self.leader_epoch

    def check_held(self) -> None:
        """Raises `KafkaError` NOT_LEADER_OR_FOLLOWER unless it is held."""
        if not self.is_held:
            name = self.partition.name
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{name} is led no longer")

    @property
    def is_certain(self) -> bool:
        """Whether no other broker can lead by now: what is answered is true (hazard H1)."""
        try:
            self.partition.check_leader(self.leader_epoch)
        except KafkaError:
            return False
        return True
