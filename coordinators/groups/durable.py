"""Groups and offsets as the committed log has them: the replay of the records up to the high watermark.

Invariant: they are what a replay of the committed log gives; `DurableGroups.put`, `put_in_transaction` and
`end_transaction` alone change them.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from echoless.coordinators.groups.consumer.state import ConsumerState, read_consumer_value
from echoless.coordinators.groups.shares import GroupShares
from echoless.coordinators.groups.transactional_offsets import OffsetsInTransactions
from echoless.coordinators.groups.usage import Usage, offset_size, value_size
from echoless.protocol.errors import DecodeError
from echoless.protocol.state_records.classic_group_value import GroupValue, read_group_value
from echoless.protocol.state_records.consumer_group_values import ConsumerValue
from echoless.protocol.state_records.group_keys import (
    ConsumerKey,
    GroupKey,
    MemberKey,
    OffsetKey,
    OtherKey,
    read_key,
)
from echoless.protocol.state_records.offset_value import OffsetValue, read_offset_value

GroupRecordKey = OffsetKey | GroupKey | ConsumerKey
GroupRecordValue = OffsetValue | GroupValue | ConsumerValue | None


@dataclass(slots=True)
class DurableGroup:
    """A group in the log: its last generation, if it had one, and its offsets."""

    value: GroupValue | None
    offsets: dict[str, dict[int, OffsetValue]]
    """Offsets by topic and partition; no topic without partitions."""
    consumer: ConsumerState | None = None
    """Records of the consumer protocol; never blank."""


class DurableGroups:
    """All groups of one partition of `__consumer_offsets`; none without a value and without offsets."""

    def __init__(self, shares: GroupShares | None = None) -> None:
        """Count the groups in `shares`."""
        self.groups: dict[str, DurableGroup] = {}
        self.size = 0
        """Bytes of assignments, and of subscriptions of the consumer protocol."""
        self.metadata = 0
        """Bytes of the metadata of offsets."""
        self.offset_count = 0
        self._shares = shares or GroupShares()
        self._in_transactions = OffsetsInTransactions()

    def apply(self, key: bytes, value: bytes | None) -> str | None:
        """Put a record of the log. Returns why it was skipped instead: its type is not known.

        Raises `DecodeError` if a record of a known type cannot be read: what it replaces is out of date.
        """
        try:
            read = read_key(key)
        except DecodeError as error:
            raise DecodeError(f"its key ({len(key)} bytes) cannot be read: {error}") from error
        try:
            match read:
                case OffsetKey():
                    self.put(read, None if value is None else read_offset_value(value))
                case GroupKey():
                    self.put(read, None if value is None else read_group_value(value))
                case OtherKey():
                    return f"records of type {read.version} are not known"
                case _:
                    self.put(read, None if value is None else read_consumer_value(read, value))
        except DecodeError as error:
            raise DecodeError(f"{_described(key, read)} cannot be read: {error}") from error
        return None

    def apply_in_transaction(self, producer_id: int, key: bytes, value: bytes | None) -> str | None:
        """Put a record of a transactional batch of the log; see `apply`."""
        try:
            read = read_key(key)
            if isinstance(read, OffsetKey) and value is not None:
                self.put_in_transaction(producer_id, read, read_offset_value(value))
                return None
        except DecodeError as error:
            raise DecodeError(f"in a transaction: {error}") from error
        return "only offsets are committed in transactions"

    def put_in_transaction(
        self, producer_id: int, key: GroupRecordKey, value: GroupRecordValue
    ) -> None:
        """Put an offset that counts once the transaction of the producer is committed."""
        assert isinstance(key, OffsetKey)
        assert isinstance(value, OffsetValue)
        if key.group_id not in self.groups:
            self.groups[key.group_id] = DurableGroup(None, {})
        self._count_offset(key.group_id, self._in_transactions.put(producer_id, key, value), value)

    def end_transaction(self, producer_id: int, *, is_commit: bool) -> set[str]:
        """Apply the offsets of a producer's transaction, or drop them. Returns the groups they are of."""
        ended = self._in_transactions.end(producer_id, is_commit=is_commit)
        for key, value in ended.dropped:
            self._count_offset(key.group_id, value, None)
        for key, value in ended.applied:
            self._put_offset(key, value)
        for group_id in ended.groups:
            self._drop_if_empty(group_id)
        return ended.groups

    def pending_offsets(self, group_id: str) -> Collection[tuple[str, int]]:
        """Topic and partition of the group's offsets in transactions that have not ended."""
        return self._in_transactions.places(group_id)

    def pending_values(self, group_id: str, place: tuple[str, int]) -> list[OffsetValue]:
        """The offsets of a partition in such transactions that may still count."""
        return self._in_transactions.values(group_id, place)

    def _count_offset(
        self, group_id: str, replaced: OffsetValue | None, value: OffsetValue | None
    ) -> None:
        offsets = (value is not None) - (replaced is not None)
        metadata = offset_size(value) - offset_size(replaced)
        self.metadata += metadata
        self.offset_count += offsets
        self._shares.change(group_id, Usage(metadata=metadata, offsets=offsets))

    def put(
        self,
        key: GroupRecordKey,
        value: GroupRecordValue,
    ) -> None:
        """Put a record that has been read. A value of None removes what the key names."""
        group = self.groups.get(key.group_id)
        if group is None:
            if value is None:
                return
            group = self.groups[key.group_id] = DurableGroup(None, {})
        if isinstance(key, GroupKey):
            assert value is None or isinstance(value, GroupValue)
            self._resize(key.group_id, value_size(value) - value_size(group.value))
            group.value = value
        elif isinstance(key, OffsetKey):
            assert value is None or isinstance(value, OffsetValue)
            transactions = self._in_transactions
            for dropped in (
                transactions.remove(key) if value is None else transactions.supersede(key)
            ):
                self._count_offset(key.group_id, dropped, None)
            self._put_offset(key, value)
        else:
            assert not isinstance(value, OffsetValue | GroupValue)
            self._put_consumer(group, key, value)
        self._drop_if_empty(key.group_id)

    def _put_offset(self, key: OffsetKey, value: OffsetValue | None) -> None:
        replaced = _put_offset(self.groups[key.group_id].offsets, key, value)
        if replaced is None or value is None or replaced.metadata != value.metadata:
            self._count_offset(key.group_id, replaced, value)

    def _drop_if_empty(self, group_id: str) -> None:
        group = self.groups.get(group_id)
        if group is None or group.value is not None or group.offsets or group.consumer is not None:
            return
        if not self._in_transactions.places(group_id):
            del self.groups[group_id]

    def _put_consumer(
        self, group: DurableGroup, key: ConsumerKey, value: ConsumerValue | None
    ) -> None:
        state = group.consumer = group.consumer or ConsumerState()
        before = state.size
        state.put(key, value)
        if isinstance(key, MemberKey):  # whose bytes are the member's share
            self.size += state.size - before
        else:
            self._resize(key.group_id, state.size - before)
        if state.is_blank:
            group.consumer = None

    def _resize(self, group_id: str, change: int) -> None:
        self.size += change
        self._shares.change(group_id, Usage(size=change))


def _described(data: bytes, key: tuple[object, ...]) -> str:
    return f"type {int.from_bytes(data[:2])}, {key}"


def _put_offset(
    offsets: dict[str, dict[int, OffsetValue]], key: OffsetKey, value: OffsetValue | None
) -> OffsetValue | None:
    """Put or remove an offset. Returns the one that was there."""
    if value is not None:
        partitions = offsets.setdefault(key.topic, {})
        replaced = partitions.get(key.partition)
        partitions[key.partition] = value
        return replaced
    partitions = offsets.get(key.topic, {})
    replaced = partitions.pop(key.partition, None)
    if not partitions:
        offsets.pop(key.topic, None)
    return replaced
