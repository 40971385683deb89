"""Native produce messages that are known again mean what the general reader says."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import msgpack
from hypothesis import given
from hypothesis import strategies as st

from echoless.protocol.errors import DecodeError, KafkaError
from echoless.protocol.known.memory import SeenBytes
from echoless.protocol.known.native_produce import note_produce, read_known_produce
from echoless.protocol.native.codec import locate_fields
from echoless.protocol.native.fields import Fields
from echoless.protocol.native.messages import Produce

LOOK_ALIKES = [
    "\u0965batch",
    "\u00aecorrelation_id",
    "\u00aecorrelation_id\1",
    "\u00aecorrelation_id\2",
]
"""Texts whose bytes end with, or hold, the encoded name of a field."""
TEXTS = st.one_of(st.text(max_size=12), st.sampled_from(LOOK_ALIKES))
IDS = st.one_of(
    st.integers(-(2**63), 2**64 - 1),
    st.integers(0, 300),
    st.sampled_from([None, 1.5, "7", b"7", [7], -1, -33, 2**31, 2**63, 2**64 - 1]),
)
BATCHES = st.one_of(st.binary(max_size=300), st.just(bytes(70_000)), st.just(bytes(5000)))
OTHERS = st.dictionaries(
    st.sampled_from(["novelty", "records", "producer_id", "timeout_ms", "acks", "extra"]),
    st.one_of(st.none(), st.integers(-2, 40_000), TEXTS, st.sampled_from([b"\xa5batch", [b"x"]])),
    max_size=2,
)
"""Bytes as values may hold what looks like the name of a field."""


def wide(value: int) -> Iterator[bytes]:
    """All encodings of an integer."""
    for first, layout in zip(range(0xCC, 0xD4), "BHIQbhiq", strict=True):
        try:
            yield bytes((first,)) + struct.pack(f">{layout}", value)
        except struct.error:
            continue
    yield msgpack.packb(value)


def binary(data: bytes) -> Iterator[bytes]:
    """All encodings of bytes, and some whose length lies."""
    for first, layout in zip((0xC4, 0xC5, 0xC6), "BHI", strict=True):
        for size in {len(data), max(len(data) - 1, 0), len(data) + 1}:
            try:
                yield bytes((first,)) + struct.pack(f">{layout}", size) + data
            except struct.error:
                continue
    yield msgpack.packb(data.decode("latin1"))


@st.composite
def fields(draw: st.DrawFn) -> list[tuple[str, Any]]:
    """The fields of a message in any order, most of them as a client sends them."""
    required = {"type": "produce", "topic": draw(TEXTS), "partition": draw(st.integers(0, 300))}
    named = {**required, **draw(OTHERS)}
    if draw(st.booleans()):
        named["correlation_id"] = draw(IDS)
    order = draw(st.permutations(list(named.items())))
    batch = ("batch", draw(BATCHES))
    return [*order, batch] if draw(st.booleans()) else draw(st.permutations([*order, batch]))


@st.composite
def encoded(draw: st.DrawFn, named: list[tuple[str, Any]]) -> bytes:
    """The message with the batch, and the id if it is an integer, in any of their encodings."""
    frame = bytes((0x80 | len(named),))
    for name, value in named:
        forms = [msgpack.packb(value)]
        if name == "correlation_id" and type(value) is int:
            forms = list(wide(value))
        elif name == "batch":
            forms += binary(value)
        key = msgpack.packb(name)
        if draw(st.integers(0, 9)) == 0:
            key = b"\xd9" + bytes((len(name),)) + name.encode()
        frame += key + draw(st.sampled_from(forms))
    return frame


def read(frame: bytes) -> tuple[int | None, Fields, Produce] | None:
    """Returns what any reader of a message finds in it; None for an error."""
    try:
        found = Fields("produce", locate_fields(frame))
        if found.text("type") != "produce":
            return None
        correlation_id = None
        if "correlation_id" in found:
            correlation_id = found.integer("correlation_id", least=-(2**63), most=2**64 - 1)
        return correlation_id, found, Produce.read(found)
    except (DecodeError, KafkaError):
        return None


def note(seen: SeenBytes, frame: bytes) -> None:
    found = read(frame)
    if found is not None:
        note_produce(seen, frame, found[1], found[2])


def check(seen: SeenBytes, frame: bytes) -> bool:
    """Whether the message is known; fails if it is, and means something else."""
    known = read_known_produce(seen, frame)
    if known is None:
        return False
    found = read(frame)
    assert found is not None, frame
    correlation_id, _, message = found
    assert known[0] == correlation_id
    assert type(known[0]) is type(correlation_id)
    batch = known[1].batch
    assert batch is not None
    assert message.batch is not None
    assert bytes(batch) == bytes(message.batch)
    assert replace(known[1], batch=None) == replace(message, batch=None)
    return True


@given(data=st.data())
def test_what_is_known_is_what_any_reader_finds(data):
    """After any message, another one with the same or other values, encodings and order is read alike, or not known."""
    seen = SeenBytes()
    named = data.draw(fields())
    note(seen, data.draw(encoded(named)))
    others = {"correlation_id": IDS, "batch": BATCHES}
    if data.draw(st.booleans()):
        others["topic"] = TEXTS
    changed = [(name, data.draw(others.get(name, st.just(value)))) for name, value in named]
    check(seen, data.draw(encoded(changed)))
    check(seen, data.draw(encoded(data.draw(fields()))))


@given(data=st.data())
def test_hostile_bytes_are_known_only_as_what_they_are(data):
    """Any change of bytes, any cut and any bytes more, of a message like one that is known."""
    seen = SeenBytes()
    frame = data.draw(encoded(data.draw(fields())))
    note(seen, frame)
    damaged = bytearray(frame)
    for _ in range(data.draw(st.integers(1, 3))):
        damaged[data.draw(st.integers(0, min(len(frame), 200) - 1))] = data.draw(
            st.integers(0, 255)
        )
    check(seen, bytes(damaged))
    place = data.draw(st.integers(0, min(len(frame), 200)))
    check(seen, frame[:place])
    check(seen, frame[:place] + data.draw(st.binary(max_size=12)) + frame[place:])
    check(seen, frame[:place] + data.draw(st.binary(max_size=300)))
    check(seen, frame + b"\0")


@given(
    topic=st.text(max_size=12),
    ids=st.lists(st.integers(0, 2**64 - 1), min_size=2, max_size=2),
    batches=st.lists(BATCHES, min_size=2, max_size=2),
)
def test_the_usual_client_is_known(topic, ids, batches):
    """The messages after the first of a client that ends them with the batch, with ids of any size and without."""
    seen = SeenBytes()
    for named in ({"type": "produce"}, {"type": "produce", "correlation_id": 0}):
        for again in (False, True):
            message = {**named, "topic": topic, "partition": 1, "acks": 1}
            if "correlation_id" in message:
                message["correlation_id"] = ids[again]
            frame = msgpack.packb({**message, "batch": batches[again]})
            if again:
                assert check(seen, frame)
            else:
                note(seen, frame)


def test_a_large_frame_and_another_order_are_not_known():
    """Leaves to the reader what is not bytes, or does not end with its batch."""
    seen = SeenBytes()
    frame = msgpack.packb({"type": "produce", "topic": "t", "partition": 0, "batch": b"x"})
    note(seen, frame)
    assert check(seen, frame)
    assert read_known_produce(seen, memoryview(frame)) is None
    behind = msgpack.packb({"type": "produce", "batch": b"x", "topic": "t", "partition": 0})
    note(seen, behind)
    assert not any(check(seen, behind[:place]) for place in range(len(behind) + 1))


def test_a_batch_inside_of_another_value_is_none():
    """A value that looks like a batch to the end of the message is not taken for it."""
    seen = SeenBytes()
    place = {"type": "produce", "topic": "t", "partition": 0}
    extra = b"\xa5batch\xc4?"
    frame = msgpack.packb({"extra": extra, **place, "batch": b"x"})
    rest = len(frame) - frame.index(b"?") - 1
    frame = frame.replace(b"?", bytes((rest,)))
    note(seen, frame)
    assert not check(seen, frame)


def test_a_long_beginning_is_not_kept():
    """The general reader reads it every time."""
    seen = SeenBytes()
    long = msgpack.packb({"type": "produce", "topic": "t" * 500, "partition": 0, "batch": b"x"})
    note(seen, long)
    assert read_known_produce(seen, long) is None
    assert not seen.native_produces
