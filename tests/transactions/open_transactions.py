"""Whether a transaction is open in a topic, by its last stable offsets."""

from __future__ import annotations

from operator import lt

from confluent_kafka import IsolationLevel, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

_WITHIN_S = 60.0


def is_open(admin: AdminClient, topic: str, partitions: int) -> bool:
    """Whether readers of committed records are held back in any partition."""
    committed, stored = (
        _ends(admin, topic, partitions, isolation)
        for isolation in (IsolationLevel.READ_COMMITTED, IsolationLevel.READ_UNCOMMITTED)
    )
    return any(map(lt, committed, stored))


def _ends(admin: AdminClient, topic: str, partitions: int, isolation: IsolationLevel) -> list[int]:
    wanted = {TopicPartition(topic, one): OffsetSpec.latest() for one in range(partitions)}  # type: ignore[no-untyped-call]
    found = admin.list_offsets(wanted, isolation_level=isolation)
    return [found[one].result(_WITHIN_S).offset for one in wanted]
