"""A membership that says what the test wants it to say."""

from __future__ import annotations

from dataclasses import dataclass, field

from broker.metadata.registration import BrokerInfo
from broker.metadata.topic import Topic
from broker.partitions.partition import Partition


@dataclass(slots=True)
class FakeMembership:
    """Notes what it is told. `epochs`: broker id -> the registered life of it."""

    is_proved: bool = True
    takes_records: bool = True
    controller_id: int = 1
    brokers: dict[int, BrokerInfo] = field(default_factory=dict)
    epochs: dict[int, int] = field(default_factory=dict)
    progress: list[Partition] = field(default_factory=list)

    @property
    def brokers_for_clients(self) -> dict[int, BrokerInfo]:
        return self.brokers

    def registered_epoch(self, broker_id: int) -> int | None:
        return self.epochs.get(broker_id)

    def role_changed(self, partition: Partition) -> None: ...

    def isr_may_change(self, partition: Partition) -> None:
        self.progress.append(partition)

    def forget(self, partition: Partition) -> None: ...

    async def join(self, info: BrokerInfo) -> None: ...

    async def topic_created(self, topic: Topic) -> None: ...

    def storage_failed(self) -> None: ...

    async def hand_over(self) -> None: ...

    async def leave(self) -> None: ...
