"""Records that a coordinator does not understand: types that are not known are skipped, doubtful state is never served."""

from __future__ import annotations

import struct

import pytest

from echoless.coordinators.effects import StateRecord
from echoless.protocol.errors import DecodeError
from echoless.protocol.state_records.group_keys import (
    CurrentKey,
    EpochKey,
    MemberKey,
    OffsetKey,
    read_key,
)
from tests.coordinators.groups.consumers import ConsumerShell


@pytest.fixture
def shell() -> ConsumerShell:
    """A group of the consumer protocol with a member, and its log."""
    shell = ConsumerShell()
    shell.beat("m1", 0)
    return shell


def place_of(shell: ConsumerShell, kind: type) -> int:
    """The place of the newest record of this kind in the log."""
    return max(place for place, one in enumerate(shell.log) if isinstance(read_key(one.key), kind))


@pytest.mark.parametrize("kind", [EpochKey, MemberKey, CurrentKey])
@pytest.mark.parametrize("value", [b"\x00\x01rest", b"\x00\x00", b""])
def test_a_value_that_cannot_be_read_ends_the_loading(shell, kind, value):
    """A newer version, or bytes that end too soon: what the record replaces is out of date. Its type is named."""
    place = place_of(shell, kind)
    shell.log[place] = StateRecord(shell.log[place].key, value)
    with pytest.raises(
        DecodeError, match=rf"^type \d, {kind.__name__}\(group_id='g'.*cannot be read: "
    ):
        shell.load()


def test_an_offset_of_a_newer_version_ends_the_loading(shell):
    """The older offset would be served: records would be read a second time."""
    key = b"\x00\x01\x00\x01g\x00\x01t\x00\x00\x00\x05"
    assert read_key(key) == OffsetKey("g", "t", 5)
    shell.log.append(StateRecord(key, struct.pack(">hq", 5, 1)))
    with pytest.raises(DecodeError, match=r"type 1, OffsetKey.*a committed offset of version 5"):
        shell.load()


@pytest.mark.parametrize("key", [b"", b"\x00", b"\x00\x08\x00\x01", b"\x00\x01\x00\x09g"])
def test_a_key_that_cannot_be_read_ends_the_loading(shell, key):
    """No one can say which group it concerns."""
    shell.log.append(StateRecord(key, b""))
    with pytest.raises(DecodeError, match=rf"its key \({len(key)} bytes\) cannot be read"):
        shell.load()


@pytest.mark.parametrize("version", [4, 9, 15, 99])
def test_a_record_of_an_unknown_type_is_skipped_with_its_number(shell, version):
    """As Kafka does: share groups keep theirs beside these."""
    reason = shell.coordinator.apply(struct.pack(">h", version) + b"?", b"?")
    assert reason == f"records of type {version} are not known"


@pytest.mark.parametrize(
    ("kind", "what"),
    [
        (CurrentKey, "of its member m1 it is not known what it has"),
        (MemberKey, "it is known what m1 has"),
        (EpochKey, "it has members and no epoch"),
    ],
)
def test_records_that_contradict_each_other_end_the_loading(shell, kind, what):
    """The group is named; a member without its assignment was a KeyError later on."""
    shell.log = [one for one in shell.log if not isinstance(read_key(one.key), kind)]
    with pytest.raises(DecodeError, match=f"the records of group g do not agree: {what}"):
        shell.load()
