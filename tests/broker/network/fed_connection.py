"""A connection that a test feeds itself: without a socket, so that it knows what one read and one write carry."""

from __future__ import annotations

import asyncio
import struct


def framed(payload: bytes) -> bytes:
    return struct.pack(">i", len(payload)) + payload


class LostTransport(asyncio.Transport):
    """A connection's transport of which the test decides when it is lost."""

    def set_write_buffer_limits(self, high=None, low=None):
        pass

    def pause_reading(self):
        pass

    def resume_reading(self):
        pass

    def is_closing(self):
        return False


class PausedTransport(LostTransport):
    """Knows whether the connection wants to be read, and takes every answer."""

    def __init__(self):
        super().__init__()
        self.is_paused = False

    def pause_reading(self):
        self.is_paused = True

    def resume_reading(self):
        self.is_paused = False

    def write(self, data):
        pass


class RecordingTransport(LostTransport):
    """Keeps what each write carried, and whether the connection was closed after it."""

    def __init__(self):
        super().__init__()
        self.writes: list[bytes] = []

    def write(self, data):
        self.writes.append(bytes(data))

    def writelines(self, list_of_data):
        self.writes.append(b"".join(list_of_data))

    def close(self):
        self.writes.append(b"closed")

    def get_write_buffer_size(self):
        return 0


def receive(connection, data):
    """Hands bytes to the connection, as the loop does after one read."""
    while data:
        buffer = connection.get_buffer(-1)
        size = min(len(buffer), len(data))
        buffer[:size] = data[:size]
        data = data[size:]
        connection.buffer_updated(size)
