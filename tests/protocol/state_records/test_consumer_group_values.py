"""The records of a group of the consumer protocol: bytes there and back, and the worked example of the page."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from echoless.coordinators.groups.consumer.state import read_consumer_value
from echoless.protocol.errors import DecodeError
from echoless.protocol.state_records.consumer_group_values import (
    ConsumerMemberState,
    ConsumerValue,
    CurrentValue,
    EpochValue,
    MemberValue,
    RegexValue,
    TargetEpochValue,
    TargetValue,
    read_current,
    read_epoch,
    read_member,
    read_regex,
    read_target,
    read_target_epoch,
    write_consumer_value,
)
from echoless.protocol.state_records.group_keys import (
    ConsumerKey,
    CurrentKey,
    EpochKey,
    MemberKey,
    RegexKey,
    TargetEpochKey,
    TargetKey,
    read_key,
    write_consumer_key,
)
from tests.protocol.state_records.test_page import PAGE

READERS = (read_epoch, read_member, read_target_epoch, read_target, read_current, read_regex)
TOPIC = bytes(range(16))
EXAMPLE: list[tuple[ConsumerKey, ConsumerValue]] = [
    (EpochKey("g"), EpochValue(5, 258)),
    (
        MemberKey("g", "m"),
        MemberValue("i", None, "c", "/127.0.0.1", ("t",), "t.*", 300_000, "uniform"),
    ),
    (TargetEpochKey("g"), TargetEpochValue(5)),
    (TargetKey("g", "m"), TargetValue(frozenset({(TOPIC, 0), (TOPIC, 1)}))),
    (
        CurrentKey("g", "m"),
        CurrentValue(
            5, 4, ConsumerMemberState.UNREVOKED_PARTITIONS, {(TOPIC, 0): 3}, {(TOPIC, 2): 4}
        ),
    ),
    (RegexKey("g", "t.*"), RegexValue(("t", "tt"), 7, 1_700_000_000_000)),
]
RECORDS = [(write_consumer_key(key), write_consumer_value(value)) for key, value in EXAMPLE]

int32 = st.integers(0, 2**31 - 1)
texts = st.text(max_size=20)
names = st.sets(texts).map(lambda found: tuple(sorted(found)))
partitions = st.tuples(st.binary(min_size=16, max_size=16), int32)
epochs = st.dictionaries(partitions, int32, max_size=5)
VALUES: st.SearchStrategy[tuple[ConsumerKey, ConsumerValue]] = st.one_of(
    st.tuples(
        st.builds(EpochKey, texts), st.builds(EpochValue, int32, st.integers(-(2**63), 2**63 - 1))
    ),
    st.tuples(
        st.builds(MemberKey, texts, texts),
        st.builds(
            MemberValue,
            st.none() | texts,
            st.none() | texts,
            texts,
            texts,
            names,
            st.none() | st.text(min_size=1, max_size=20),
            int32,
            st.none() | texts,
        ),
    ),
    st.tuples(st.builds(TargetEpochKey, texts), st.builds(TargetEpochValue, int32)),
    st.tuples(
        st.builds(TargetKey, texts, texts),
        st.builds(TargetValue, st.frozensets(partitions, max_size=5)),
    ),
    st.tuples(
        st.builds(CurrentKey, texts, texts),
        st.builds(CurrentValue, int32, int32, st.sampled_from(ConsumerMemberState), epochs, epochs),
    ),
    st.tuples(st.builds(RegexKey, texts, texts), st.builds(RegexValue, names, int32, int32)),
)


@given(VALUES)
def test_records_are_read_as_they_were_written(record: tuple[ConsumerKey, ConsumerValue]) -> None:
    """Keys with their type, which alone tells some of them apart."""
    key, value = record
    found = read_key(write_consumer_key(key))
    assert (type(found), found) == (type(key), key)
    assert read_consumer_value(key, write_consumer_value(value)) == value


@pytest.mark.parametrize("reader", READERS)
@given(data=st.binary(max_size=60))
def test_any_bytes_are_read_or_refused(reader: Callable[[bytes], object], data: bytes) -> None:
    """Hostile lengths, cut fields and text that is not UTF-8 are a `DecodeError`, and take no memory."""
    for candidate in (data, b"\0\0" + data):
        try:
            reader(candidate)
        except DecodeError:
            continue


def test_newer_versions_and_unknown_states_are_refused() -> None:
    """They are not guessed at."""
    with pytest.raises(DecodeError, match="version 1"):
        read_epoch(b"\0\1\0\0\0\1\0")
    with pytest.raises(DecodeError, match="state 7"):
        read_current(b"\0\0" + b"\0\0\0\1\0\0\0\0\7\1\1\0")


def test_a_partition_without_an_epoch_was_assigned_in_any_up_to_the_members() -> None:
    """As Kafka before 4.3 stores it."""
    epochs = (9).to_bytes(4, "big") + (8).to_bytes(4, "big")
    topic = b"\2" + TOPIC + b"\2\0\0\0\3\0"
    value = read_current(b"\0\0" + epochs + b"\0" + topic + b"\1\0")
    assert value == CurrentValue(9, 8, ConsumerMemberState.STABLE, {(TOPIC, 3): 9}, {})


def test_the_page_has_these_bytes() -> None:
    """`docs/formats/consumer-offsets.md` shows each of the records."""
    listing = PAGE.read_text(encoding="utf-8").split("```")[3]
    shown = bytes.fromhex("".join(line.partition("  ")[0] for line in listing.splitlines()))
    assert b"".join(key + value for key, value in RECORDS) == shown
