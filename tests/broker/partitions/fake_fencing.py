"""A cluster that answers a partition's questions as the test wants."""

from __future__ import annotations

from dataclasses import dataclass, field

from echoless.broker.partitions.partition import Partition


@dataclass(slots=True)
class FakeFencing:
    """Records the progress of followers. `epochs`: broker id -> its registered broker epoch."""

    is_proved: bool = True
    takes_records: bool = True
    epochs: dict[int, int] = field(default_factory=dict)
    progress: list[Partition] = field(default_factory=list)

    def registered_epoch(self, broker_id: int) -> int | None:
        return self.epochs.get(broker_id)

    def isr_may_change(self, partition: Partition) -> None:
        self.progress.append(partition)
