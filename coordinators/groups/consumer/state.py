"""The stored part of a group of the consumer protocol: the replay of its records.

The same class holds what is committed and what a coordinator works on, so loading and serving share `put`.

Invariant: `owners`, `instances`, `subscribed` and `size` agree with `currents`, `members` and `regexes`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Final

from echoless.protocol.state_records.consumer_group_values import (
    ConsumerValue,
    CurrentValue,
    EpochValue,
    MemberValue,
    RegexValue,
    TargetEpochValue,
    TargetValue,
    TopicIdPartition,
    read_current,
    read_epoch,
    read_member,
    read_regex,
    read_target,
    read_target_epoch,
)
from echoless.protocol.state_records.group_keys import (
    ConsumerKey,
    CurrentKey,
    EpochKey,
    MemberKey,
    RegexKey,
    TargetEpochKey,
    TargetKey,
)

_PARTITION_BYTES: Final = 120
"""An estimate of the memory of a partition in an assignment."""
_TEXT_BYTES: Final = 64
"""The memory of a text besides its characters."""
_READERS: Final[Mapping[type[ConsumerKey], Callable[[bytes], ConsumerValue]]] = {
    EpochKey: read_epoch,
    MemberKey: read_member,
    TargetEpochKey: read_target_epoch,
    TargetKey: read_target,
    CurrentKey: read_current,
    RegexKey: read_regex,
}


class ConsumerState:
    """Epochs, members, what they are to have and what they have."""

    def __init__(self) -> None:
        self.epoch: EpochValue | None = None
        self.target_epoch = 0
        self.members: dict[str, MemberValue] = {}
        self.targets: dict[str, frozenset[TopicIdPartition]] = {}
        self.currents: dict[str, CurrentValue] = {}
        self.regexes: dict[str, RegexValue] = {}
        self.owners: dict[TopicIdPartition, str] = {}
        """The member that has each partition, or has not given it up yet."""
        self.subscribed: dict[str, int] = {}
        """The number of members and regular expressions that stand for each topic."""
        self.instances: dict[str, str] = {}
        """Ids of static members, by instance id."""
        self.size = 0
        """An estimate of the memory that the state takes, in bytes."""

    @property
    def number(self) -> int:
        """The group's epoch."""
        return 0 if self.epoch is None else self.epoch.epoch

    @property
    def is_blank(self) -> bool:
        """Whether there is no record of it."""
        return (
            self.epoch is None
            and not self.target_epoch
            and not (self.members or self.targets or self.currents or self.regexes)
        )

    def put(self, key: ConsumerKey, value: ConsumerValue | None) -> None:
        """Put the value of a record, or remove what the key names."""
        self.size += consumer_value_size(value) - consumer_value_size(self.get(key))
        match key:
            case EpochKey():
                assert value is None or isinstance(value, EpochValue)
                self.epoch = value
            case TargetEpochKey():
                assert value is None or isinstance(value, TargetEpochValue)
                self.target_epoch = 0 if value is None else value.epoch
            case MemberKey():
                assert value is None or isinstance(value, MemberValue)
                self._put_member(key.member_id, value)
            case TargetKey():
                assert value is None or isinstance(value, TargetValue)
                self.targets.pop(key.member_id, None)
                if value is not None:
                    self.targets[key.member_id] = value.partitions
            case CurrentKey():
                assert value is None or isinstance(value, CurrentValue)
                self._put_current(key.member_id, value)
            case RegexKey():
                assert value is None or isinstance(value, RegexValue)
                replaced = self.regexes.pop(key.pattern, None)
                self._count(value.topics if value else (), replaced.topics if replaced else ())
                if value is not None:
                    self.regexes[key.pattern] = value

    def get(self, key: ConsumerKey) -> ConsumerValue | None:
        """The value that was put last; None if there is none."""
        match key:
            case EpochKey():
                return self.epoch
            case TargetEpochKey():
                return TargetEpochValue(self.target_epoch) if self.target_epoch else None
            case MemberKey():
                return self.members.get(key.member_id)
            case TargetKey():
                found = self.targets.get(key.member_id)
                return None if found is None else TargetValue(found)
            case CurrentKey():
                return self.currents.get(key.member_id)
            case RegexKey():
                return self.regexes.get(key.pattern)

    def contradiction(self) -> str | None:
        """Look for what cannot be if every record was read; None if nothing contradicts the rest."""
        if self.members and self.epoch is None:
            return "it has members and no epoch (type 3)"
        for member_id in self.members.keys() ^ self.currents.keys():
            if member_id in self.members:
                return f"of its member {member_id} it is not known what it has (type 8)"
            return f"it is known what {member_id} has (type 8), which is no member (type 5)"
        return None

    def keys(self, group_id: str) -> Iterator[ConsumerKey]:
        """The keys of all its records, in the order in which Kafka removes them."""
        yield from (CurrentKey(group_id, one) for one in self.currents)
        yield from (TargetKey(group_id, one) for one in self.targets)
        yield from (MemberKey(group_id, one) for one in self.members)
        yield from (RegexKey(group_id, one) for one in self.regexes)
        yield TargetEpochKey(group_id)
        yield EpochKey(group_id)

    def copy(self) -> ConsumerState:
        """The same state, to be changed by itself."""
        other = ConsumerState()
        other.epoch, other.target_epoch, other.size = self.epoch, self.target_epoch, self.size
        other.members, other.targets = dict(self.members), dict(self.targets)
        other.currents, other.regexes = dict(self.currents), dict(self.regexes)
        other.owners, other.instances = dict(self.owners), dict(self.instances)
        other.subscribed = dict(self.subscribed)
        return other

    def _put_member(self, member_id: str, value: MemberValue | None) -> None:
        before = self.members.pop(member_id, None)
        self._count(value.topic_names if value else (), before.topic_names if before else ())
        instance_id = before.instance_id if before is not None else None
        if instance_id is not None and self.instances.get(instance_id) == member_id:
            del self.instances[instance_id]
        if value is not None:
            self.members[member_id] = value
            if value.instance_id is not None:
                self.instances[value.instance_id] = member_id

    def _count(self, names: Collection[str], instead_of: Collection[str]) -> None:
        """Count topics that a member or an expression stands for, instead of others."""
        if names == instead_of:
            return
        counts = self.subscribed
        for name in names:
            counts[name] = counts.get(name, 0) + 1
        for name in instead_of:
            counts[name] -= 1
            if not counts[name]:
                del counts[name]

    def _put_current(self, member_id: str, value: CurrentValue | None) -> None:
        before = self.currents.pop(member_id, None)
        if before is not None:
            for partition in (*before.assigned, *before.pending):
                if self.owners.get(partition) == member_id:
                    del self.owners[partition]
        if value is not None:
            self.currents[member_id] = value
            self.owners.update(dict.fromkeys((*value.assigned, *value.pending), member_id))


def read_consumer_value(key: ConsumerKey, data: bytes) -> ConsumerValue:
    """Reads the value of a record. Raises `DecodeError`."""
    read: Callable[[bytes], ConsumerValue] = _READERS[type(key)]
    return read(data)


def consumer_value_size(value: ConsumerValue | None) -> int:
    """Estimates the memory that a value takes, in bytes."""
    match value:
        case TargetValue():
            return _PARTITION_BYTES * len(value.partitions)
        case CurrentValue():
            return _PARTITION_BYTES * (len(value.assigned) + len(value.pending))
        case MemberValue():
            return member_size(value.topic_names, value.topic_regex)
        case RegexValue():
            return sum(map(_text_size, value.topics))
        case _:
            return 0


def member_size(names: tuple[str, ...], regex: str | None) -> int:
    """Estimates the memory that a subscription takes, in bytes."""
    return sum(map(_text_size, names)) + (_text_size(regex) if regex else 0)


def _text_size(text: str) -> int:
    return _TEXT_BYTES + (len(text) if text.isascii() else 4 * len(text))
