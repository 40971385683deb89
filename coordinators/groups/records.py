"""The records of a group: what is stored of it, with keys and values that are read, and as bytes."""

from __future__ import annotations

from echoless.coordinators.effects import StateRecord
from echoless.protocol.state_records.classic_group_value import GroupValue, write_group_value
from echoless.protocol.state_records.consumer_group_values import (
    ConsumerValue,
    write_consumer_value,
)
from echoless.protocol.state_records.group_keys import (
    ConsumerKey,
    GroupKey,
    OffsetKey,
    write_consumer_key,
    write_group_key,
    write_offset_key,
)
from echoless.protocol.state_records.offset_value import OffsetValue, write_offset_value

GroupRecord = (
    tuple[OffsetKey, OffsetValue | None]
    | tuple[GroupKey, GroupValue | None]
    | tuple[ConsumerKey, ConsumerValue | None]
)
"""Key and value; a value of None is a tombstone."""


def packed(record: GroupRecord) -> StateRecord:
    """The record as it is appended."""
    key, value = record
    if isinstance(key, OffsetKey):
        assert value is None or isinstance(value, OffsetValue)
        data = None if value is None else write_offset_value(value)
        return StateRecord(write_offset_key(key), data)
    if isinstance(key, GroupKey):
        assert value is None or isinstance(value, GroupValue)
        data = None if value is None else write_group_value(value)
        return StateRecord(write_group_key(key.group_id), data)
    assert not isinstance(value, OffsetValue | GroupValue)
    return StateRecord(
        write_consumer_key(key), None if value is None else write_consumer_value(value)
    )
