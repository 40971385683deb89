"""Length-prefixed frames: 4 bytes big-endian length, then that many bytes. Both ports use them.

Sans-I/O: the shell asks where the next bytes should go (`writable`), says how many arrived
(`received`), and takes complete frames (`next_frame`). Small frames share one buffer and are copied
out of it; a frame that does not fit gets a buffer of its own, into which the socket is read
directly. That buffer grows as bytes arrive: a peer that only announces a large frame
takes no memory. A shell that accounts for memory asks `wanted_bytes` before it calls
`writable`.

Invariant: `_start <= _end <= len(_buffer)`; bytes before `_start` were handed out.
Invariant: the buffer of a large frame is at most `GROWTH_MAX` times as large as what has arrived of
it.
"""

from __future__ import annotations

import mmap
import struct
from typing import Final

from echoless.protocol.errors import DecodeError

_LENGTH: Final = struct.Struct(">i")
LENGTH_SIZE: Final = _LENGTH.size
_read_length: Final = _LENGTH.unpack_from
SHARED_BUFFER_SIZE: Final = 65536
HUGE_FRAME_SIZE: Final = 4 * 1024 * 1024
"""Frames from this size on use a memory mapping, which the kernel enlarges without copying."""
GROWTH_MAX: Final = 5
_GROWTH: Final = 4
"""Growth factor of the buffer: a frame of 1 MB is copied by a third."""
_HUGE_GROWTH: Final = 2

_FOREIGN_STARTS: Final = {
    b"\x16\x03": "TLS, which listener_security_protocol_map turns on",
    b"GET ": "HTTP",
    b"HEAD": "HTTP",
    b"POST": "HTTP",
    b"PUT ": "HTTP",
    b"PRI ": "HTTP/2",
    b"SSH-": "SSH",
}

Frame = bytes | memoryview


class FrameReceiver:
    """Cuts a stream of bytes into frames of at most `frame_size_max` bytes."""

    __slots__ = (
        "_buffer",
        "_end",
        "_frame_size_max",
        "_large",
        "_large_filled",
        "_large_size",
        "_lent",
        "_start",
        "_view",
        "has_more",
    )

    def __init__(self, frame_size_max: int) -> None:
        self._frame_size_max = frame_size_max
        self._buffer = bytearray(SHARED_BUFFER_SIZE)
        self._view = memoryview(self._buffer)
        self._start = 0
        self._end = 0
        self.has_more = False
        """Whether frames may be left: there are bytes that `take_frames` has not looked at, or not taken."""
        self._large: bytearray | mmap.mmap | None = None
        self._large_filled = 0
        self._large_size = 0
        self._lent: memoryview | None = None
        """The view of a large frame that `writable` last returned.

        A mapping cannot grow while a view exists, and one may outlive its read: a sampling profiler keeps the frames of the
        interpreter that it looks at, with their variables. So each is released before the next is made.
        """

    def writable(self) -> memoryview:
        """The buffer for the next bytes; never empty if complete frames are taken between calls.

        The result of an earlier call must no longer be used.
        """
        if self._lent is not None:
            self._lent.release()
            self._lent = None
        if self._large is None:
            if self._start == self._end:
                self._start = self._end = 0
                return self._view
            if self._end == SHARED_BUFFER_SIZE:
                self._move_to_front()
            if self._end < SHARED_BUFFER_SIZE:
                return self._view[self._end :]
            self._begin_large()
        elif self._large_filled == len(self._large):
            self._grow()
        assert self._large is not None
        self._lent = memoryview(self._large)[self._large_filled :]
        return self._lent

    def received(self, count: int) -> bool:
        """Records that `count` bytes were written into the buffer that `writable` returned; returns whether it is full."""
        self.has_more = True
        if self._large is not None:
            self._large_filled += count
            return self._large_filled == len(self._large)
        self._end += count
        return self._end == SHARED_BUFFER_SIZE

    def limit(self, frame_size_max: int) -> None:
        """Changes the limit for frames whose length has not been read yet."""
        self._frame_size_max = frame_size_max

    def next_frame(self) -> Frame | None:
        """The next complete frame without its length, or None until more bytes arrive.

        Raises `DecodeError` for a negative length or one above the limit.
        """
        if self._large is not None:
            return self._take_large() if self._large_filled == self._large_size else None
        have = self._end - self._start
        if have < LENGTH_SIZE:
            return None
        (size,) = _LENGTH.unpack_from(self._buffer, self._start)
        if size < 0 or size > self._frame_size_max:
            reason = f"a frame of {size} bytes; 0 to {self._frame_size_max} are allowed"
            raise DecodeError(reason + _looks_like(self._view[self._start : self._end]))
        begin = self._start + LENGTH_SIZE
        if begin + size <= self._end:
            self._start = begin + size
            return bytes(self._view[begin : begin + size])
        return None

    def take_frames(self) -> list[Frame]:
        """All complete frames, the last one first: to be taken from the end.

        A wrong length ends them before it, and raises `DecodeError` when it comes first.
        """
        start, end = self._start, self._end
        begin = start + LENGTH_SIZE
        if self._large is not None or begin > end:
            frame = self.next_frame()
            self.has_more = True  # nothing is known
            return [] if frame is None else [frame]
        frames: list[Frame] = []
        view, size_max = self._view, self._frame_size_max
        while begin <= end:
            (size,) = _read_length(view, start)
            after = begin + size
            if after > end or not 0 <= size <= size_max:
                if not (frames or 0 <= size <= size_max):
                    self.next_frame()  # raises
                break
            frames.append(bytes(view[begin:after]))
            start = after
            begin = start + LENGTH_SIZE
        self._start = start
        self.has_more = start < end
        if len(frames) > 1:
            frames.reverse()
        return frames

    @property
    def wanted_bytes(self) -> int:
        """The size of the buffer that the next `writable` would make for a large frame; else 0.

        Call it only when `next_frame` has just returned None, or `take_frames` nothing.
        """
        if self._large is None:
            if self._start or self._end < SHARED_BUFFER_SIZE:
                return 0
            return _next_capacity(_LENGTH.unpack_from(self._buffer)[0], SHARED_BUFFER_SIZE)
        if self._large_filled < len(self._large):
            return 0
        return _next_capacity(self._large_size, len(self._large))

    @property
    def pending_size(self) -> int:
        """Bytes that the buffer of a large frame occupies now (0 if none)."""
        return 0 if self._large is None else len(self._large)

    def abandon(self) -> None:
        """Frees the memory of a large frame that will not be completed. Call nothing afterwards."""
        self._large = self._lent = None

    def _begin_large(self) -> None:
        (size,) = _LENGTH.unpack_from(self._buffer)
        self._large_size = size
        self._large_filled = SHARED_BUFFER_SIZE - LENGTH_SIZE
        self._large = _allocate(size, _next_capacity(size, SHARED_BUFFER_SIZE))
        self._large[: self._large_filled] = self._view[LENGTH_SIZE:]
        self._start = self._end = 0

    def _grow(self) -> None:
        large = self._large
        assert large is not None
        capacity = _next_capacity(self._large_size, len(large))
        if isinstance(large, mmap.mmap):
            large.resize(capacity)
        else:
            self._large = bytearray(capacity)
            self._large[: len(large)] = large

    def _take_large(self) -> Frame:
        assert self._large is not None
        frame = memoryview(self._large).toreadonly()
        self._large = self._lent = None
        return frame

    def _move_to_front(self) -> None:
        left = self._end - self._start
        self._buffer[:left] = self._buffer[self._start : self._end]
        self._start, self._end = 0, left


def _next_capacity(size: int, have: int) -> int:
    """Capacity for a frame of `size` bytes of which `have` have arrived."""
    if size <= GROWTH_MAX * have:
        return size  # saves one large copy
    return have * (_HUGE_GROWTH if size >= HUGE_FRAME_SIZE else _GROWTH)


def _allocate(size: int, capacity: int) -> bytearray | mmap.mmap:
    """The first buffer of a frame of `size` bytes."""
    if size < HUGE_FRAME_SIZE:
        return bytearray(capacity)
    return mmap.mmap(-1, capacity, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)


def _looks_like(received: memoryview) -> str:
    """Describes, for the log, the beginning of a stream that is not framed."""
    found = (name for start, name in _FOREIGN_STARTS.items() if received[: len(start)] == start)
    name = next(found, None)
    return "" if name is None else f" (this looks like {name})"


def frame_length(size: int) -> bytes:
    """The length prefix of a frame of `size` bytes."""
    return _LENGTH.pack(size)
