"""Frames out of a stream: however the bytes arrive, the same frames come out."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from echoless.protocol.errors import DecodeError
from echoless.protocol.framing import GROWTH_MAX, HUGE_FRAME_SIZE, SHARED_BUFFER_SIZE, FrameReceiver

SIZE_MAX = 300_000


def feed(receiver: FrameReceiver, data: bytes, step: int) -> list[bytes]:
    """Delivers at most `step` bytes at a time and takes every frame in between."""
    frames = []
    position = 0
    while position < len(data):
        room = receiver.writable()
        assert len(room) > 0, "a receiver with nothing to hand out must take bytes"
        count = min(step, len(room), len(data) - position)
        room[:count] = data[position : position + count]
        receiver.received(count)
        position += count
        while (frame := receiver.next_frame()) is not None:
            frames.append(bytes(frame))
    return frames


def framed(payloads: list[bytes]) -> bytes:
    return b"".join(struct.pack(">i", len(payload)) + payload for payload in payloads)


@given(
    sizes=st.lists(
        st.one_of(
            st.integers(0, 200),
            st.integers(SHARED_BUFFER_SIZE - 10, SHARED_BUFFER_SIZE + 10),
            st.integers(0, SIZE_MAX),
        ),
        max_size=8,
    ),
    step=st.sampled_from([7, 100, 4096, SHARED_BUFFER_SIZE, SIZE_MAX]),
)
def test_frames_do_not_depend_on_how_bytes_arrive(sizes, step):
    """Small and large frames come out whole and in order, whatever the pieces."""
    payloads = [bytes([number % 256]) * size for number, size in enumerate(sizes)]
    assert feed(FrameReceiver(SIZE_MAX), framed(payloads), step) == payloads


def test_frames_delivered_a_byte_at_a_time():
    """One byte at a time is the worst delivery there is."""
    payloads = [b"", b"a", b"bc" * 50]
    assert feed(FrameReceiver(SIZE_MAX), framed(payloads), 1) == payloads


@pytest.mark.parametrize("size", [-1, -(2**31), SIZE_MAX + 1, 2**31 - 1])
def test_an_impossible_length_is_refused(size):
    """A negative length, or one above the limit, raises before any memory is taken for it."""
    receiver = FrameReceiver(SIZE_MAX)
    with pytest.raises(DecodeError, match=str(size)):
        feed(receiver, struct.pack(">i", size), 4)
    assert receiver.pending_size == 0


def test_a_frame_outlives_the_buffer_it_arrived_in():
    """A frame that was handed out does not change when the next bytes arrive."""
    receiver = FrameReceiver(SIZE_MAX)
    (first,) = feed(receiver, framed([b"first"]), 100)
    feed(receiver, framed([b"other"]), 100)
    assert first == b"first"


def test_an_announced_frame_takes_no_memory():
    """A peer that announces a large frame and sends less than the shared buffer holds costs nothing."""
    receiver = FrameReceiver(100 * 1024 * 1024)
    feed(receiver, struct.pack(">i", 100 * 1024 * 1024) + bytes(60_000), 1000)
    assert receiver.pending_size == receiver.wanted_bytes == 0


@pytest.mark.parametrize("size", [65_533, 200_000, 1_050_000, HUGE_FRAME_SIZE, 30_000_000])
def test_a_large_buffer_grows_with_what_arrives(size):
    """It is never more than `GROWTH_MAX` times what has arrived, and is announced before it grows."""
    receiver = FrameReceiver(size)
    data = struct.pack(">i", size) + bytes(size)
    position, steps = 0, []
    while position < len(data):
        wanted = receiver.wanted_bytes
        before = receiver.pending_size
        room = receiver.writable()
        assert receiver.pending_size == (wanted or before)
        steps += [wanted] if wanted else []
        count = min(len(room), 50_000, len(data) - position)
        room[:count] = data[position : position + count]
        receiver.received(count)
        position += count
        frame = receiver.next_frame()
        assert receiver.pending_size <= GROWTH_MAX * position
    assert frame == data[4:]
    assert steps[-1] == size
    assert steps == sorted(set(steps))


@pytest.mark.parametrize(
    ("start", "name"),
    [(b"GET / HTTP/1.1", "HTTP"), (bytes.fromhex("160301020001"), "TLS"), (b"SSH-2.0-x", "SSH")],
)
def test_a_stream_of_another_protocol_is_named(start, name):
    """The log tells the operator which wrong client was pointed at the port."""
    receiver = FrameReceiver(100 * 1024 * 1024)
    receiver.writable()[: len(start)] = start
    receiver.received(len(start))
    with pytest.raises(DecodeError, match=f"looks like {name}"):
        receiver.next_frame()


def test_a_huge_frame_comes_out_whole():
    """Its memory comes from elsewhere, its bytes do not differ."""
    payload = bytes(range(256)) * (HUGE_FRAME_SIZE // 256)
    receiver = FrameReceiver(HUGE_FRAME_SIZE)
    assert feed(receiver, framed([payload, b"next"]), HUGE_FRAME_SIZE) == [payload, b"next"]


def outcome(receiver: FrameReceiver, data: bytes, step: int, *, together: bool) -> list[object]:
    """The frames, and the error that ended them, if there was one."""
    found: list[object] = []
    position = 0
    try:
        while position < len(data):
            room = receiver.writable()
            count = min(step, len(room), len(data) - position)
            room[:count] = data[position : position + count]
            receiver.received(count)
            position += count
            while frames := receiver.take_frames() if together else one_frame(receiver):
                found += map(bytes, reversed(frames))
    except DecodeError as error:
        found.append(str(error).split(" (")[0])
    return found


def one_frame(receiver: FrameReceiver) -> list[bytes | memoryview]:
    frame = receiver.next_frame()
    return [] if frame is None else [frame]


@given(
    sizes=st.lists(
        st.one_of(
            st.integers(0, 200),
            st.integers(SHARED_BUFFER_SIZE - 10, SHARED_BUFFER_SIZE + 10),
            st.sampled_from([-1, SIZE_MAX + 1]),
        ),
        max_size=8,
    ),
    step=st.sampled_from([7, 100, 4096, SHARED_BUFFER_SIZE, SIZE_MAX]),
)
def test_frames_taken_together_are_those_taken_one_by_one(sizes, step):
    """A wrong length is an error after the same frames, and not before they were taken."""
    data = b"".join(struct.pack(">i", size) + bytes(max(size, 0)) for size in sizes)
    together, singly = (
        outcome(FrameReceiver(SIZE_MAX), data, step, together=flag) for flag in (True, False)
    )
    assert together == singly


def test_a_mapping_grows_although_an_earlier_view_is_still_referenced():
    """A frame of the interpreter that someone looks at, a debugger or a sampling profiler, keeps its variables."""
    receiver = FrameReceiver(4 * HUGE_FRAME_SIZE)
    data = framed([bytes(4 * HUGE_FRAME_SIZE)])
    views, position = [], 0
    while (frame := receiver.next_frame()) is None:
        room = receiver.writable()
        views.append(room)
        count = min(SHARED_BUFFER_SIZE, len(room), len(data) - position)
        room[:count] = data[position : position + count]
        receiver.received(count)
        position += count
    assert frame == data[4:]
