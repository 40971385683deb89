"""Length-prefixed frames: 4 bytes big-endian length, then that many bytes. Both ports use them.

Sans-I/O: the shell asks where the next bytes should go (`writable`), says how many arrived
(`received`), and takes complete frames (`next_frame`). Small frames share one buffer and are
copied out of it; a frame that does not fit gets a buffer of its own, into which the socket is read
directly, so that a large produce request is never copied here.

Invariant: `_start <= _end <= len(_buffer)`; bytes before `_start` were handed out.
"""

from __future__ import annotations

import mmap
import struct
from typing import Final

from protocol.errors import DecodeError

_LENGTH: Final = struct.Struct(">i")
LENGTH_SIZE: Final = _LENGTH.size
SHARED_BUFFER_SIZE: Final = 65536
HUGE_FRAME_SIZE: Final = 4 * 1024 * 1024
"""From here on a frame takes memory only as its bytes arrive."""

_FOREIGN_STARTS: Final = {
    b"\x16\x03": "TLS, which is not served",
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

    __slots__ = ("_buffer", "_end", "_frame_size_max", "_large", "_large_filled", "_start", "_view")

    def __init__(self, frame_size_max: int) -> None:
        self._frame_size_max = frame_size_max
        self._buffer = bytearray(SHARED_BUFFER_SIZE)
        self._view = memoryview(self._buffer)
        self._start = 0
        self._end = 0
        self._large: memoryview | None = None
        self._large_filled = 0

    def writable(self) -> memoryview:
        """Where the next bytes belong; never empty as long as every frame is taken in between."""
        if self._large is not None:
            return self._large[self._large_filled :]
        if self._start == self._end:
            self._start = self._end = 0
        elif self._end == SHARED_BUFFER_SIZE:
            self._move_to_front()
        return self._view[self._end :]

    def received(self, count: int) -> None:
        """Says that `count` bytes were written into what `writable` returned."""
        if self._large is not None:
            self._large_filled += count
        else:
            self._end += count

    def next_frame(self) -> Frame | None:
        """The next complete frame without its length, or None until more bytes arrive.

        Raises `DecodeError` for a negative length or one above the limit.
        """
        if self._large is not None:
            return self._take_large()
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
        if size > SHARED_BUFFER_SIZE - LENGTH_SIZE:
            self._begin_large(begin, size)
        return None

    @property
    def pending_size(self) -> int:
        """Bytes that the frame being received takes outside the shared buffer (0: none)."""
        return 0 if self._large is None else len(self._large)

    def _begin_large(self, begin: int, size: int) -> None:
        # A bytearray is zeroed, so it takes its memory before a single byte has come.
        is_huge = size >= HUGE_FRAME_SIZE
        self._large = memoryview(mmap.mmap(-1, size) if is_huge else bytearray(size))
        self._large_filled = self._end - begin
        self._large[: self._large_filled] = self._view[begin : self._end]
        self._start = self._end = 0

    def _take_large(self) -> Frame | None:
        assert self._large is not None
        if self._large_filled < len(self._large):
            return None
        frame = self._large.toreadonly()
        self._large = None
        self._large_filled = 0
        return frame

    def _move_to_front(self) -> None:
        left = self._end - self._start
        self._buffer[:left] = self._buffer[self._start : self._end]
        self._start, self._end = 0, left


def _looks_like(received: memoryview) -> str:
    """What a stream that is no frames begins like, for whoever reads the log."""
    found = (name for start, name in _FOREIGN_STARTS.items() if received[: len(start)] == start)
    name = next(found, None)
    return "" if name is None else f" (this looks like {name})"


def frame_length(size: int) -> bytes:
    """The length prefix of a frame of `size` bytes."""
    return _LENGTH.pack(size)
