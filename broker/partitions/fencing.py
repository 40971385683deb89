"""The questions of a partition that only the cluster can answer: who may act on it, and how.

Asked before anything is acknowledged or committed; the answers come from this broker's membership
of the cluster (`broker/cluster/`).
"""

from __future__ import annotations

from typing import Protocol, TypeVar

_Partition_contra = TypeVar("_Partition_contra", contravariant=True)


class Fencing(Protocol[_Partition_contra]):
    """Tells whether this broker may act as a leader, and which fetches of followers count."""

    @property
    def is_proved(self) -> bool:
        """Whether the cluster certainly still counts on this broker; a leader acts only then."""

    @property
    def takes_records(self) -> bool:
        """Whether records may still be appended here: not while others are about to take over."""

    def registered_epoch(self, broker_id: int) -> int | None:
        """The broker's epoch; None if it is not registered or is about to leave."""

    def isr_may_change(self, partition: _Partition_contra) -> None:
        """Called when a follower of a partition led here has made progress."""
