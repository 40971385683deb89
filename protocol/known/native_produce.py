"""Native produce messages that begin as one that the connection sent before.

A client repeats every byte of its messages up to the batch, but for the correlation id; the batch is the last field.
Equals `locate_fields` with `Produce.read`, which read what is not known, and say what is wrong with it.
`tests/protocol/known/test_native_produce.py` compares both. Called by `broker/native/exchange.py`.
"""

from __future__ import annotations

import struct
from typing import Final

from echoless.protocol.framing import Frame
from echoless.protocol.known.memory import KEY_BYTES_MAX, SeenBytes
from echoless.protocol.native.fields import Fields
from echoless.protocol.native.messages import Produce

_BATCH: Final = b"\xa5batch"
_CORRELATION_ID: Final = b"\xaecorrelation_id"
_COPIED_MAX: Final = 4096
"""Batches of fewer bytes are copied out of the frame, which is faster than a view of them."""
_FIXINT_END: Final = 0x80
"""Integers below it are their own encoding."""
_INTEGERS: Final = {
    first: (struct.calcsize(layout), struct.Struct(layout).unpack_from)
    for first, layout in (
        *((0xCC, ">xB"), (0xCD, ">xH"), (0xCE, ">xI"), (0xCF, ">xQ")),
        *((0xD0, ">xb"), (0xD1, ">xh"), (0xD2, ">xi"), (0xD3, ">xq")),
    )
}
"""The size of an integer, and what reads it, by its first byte."""
_SIZES: Final = {
    first: (struct.calcsize(layout), struct.Struct(layout).unpack_from)
    for first, layout in ((0xC4, ">xB"), (0xC5, ">xH"), (0xC6, ">xI"))
}
"""The same for the number of bytes that follow."""


def read_known_produce(seen: SeenBytes, frame: Frame) -> tuple[int | None, Produce] | None:
    """`(correlation id or None, message)` if it begins as one that was noted; None for any other bytes."""
    if type(frame) is not bytes:  # large
        return None
    position = frame.find(_BATCH, 0, KEY_BYTES_MAX)
    if position < 0:
        return None
    position += len(_BATCH)
    try:
        head, correlation_id, _ = _head(frame, position)
        known = seen.native_produces.get(head)
        if known is None:
            return None
        size, read = _SIZES[frame[position]]
        begin = position + size
        if begin + read(frame, position)[0] != len(frame):
            return None
    except (KeyError, IndexError, struct.error):
        return None
    batch = frame[begin:] if len(frame) < _COPIED_MAX else memoryview(frame)[begin:]
    topic, partition, acks, timeout_ms = known
    return correlation_id, Produce(
        topic, partition, acks, timeout_ms, batch, correlation_id or 0, None
    )


def note_produce(seen: SeenBytes, frame: Frame, fields: Fields, message: Produce) -> None:
    """Remembers how a message begins that was read, if its batch ends it."""
    if type(frame) is not bytes or fields.last != "batch":
        return
    places = fields.places(len(frame))
    if places is None:
        return
    position = frame.find(_BATCH, 0, KEY_BYTES_MAX) + len(_BATCH)
    try:
        head, _, id_position = _head(frame, position)
    except (KeyError, IndexError, struct.error):
        return
    # What looks like one of the two fields may be inside of a text.
    if position == places["batch"] and id_position == places.get("correlation_id"):
        meaning = (message.topic, message.partition, message.acks, message.timeout_ms)
        seen.note(seen.native_produces, head, len(head), meaning)


def _head(frame: bytes, position: int) -> tuple[bytes, int | None, int | None]:
    """The bytes up to `position` without the correlation id; that id, and where it begins.

    Raises `KeyError`, `IndexError` or `struct.error` if something else is in the place of the id.
    """
    begin = frame.find(_CORRELATION_ID, 0, position)
    if begin < 0:
        return frame[:position], None, None
    begin += len(_CORRELATION_ID)
    first = frame[begin]
    if first < _FIXINT_END:
        return frame[:begin] + frame[begin + 1 : position], first, begin
    size, read = _INTEGERS[first]
    (correlation_id,) = read(frame, begin)
    return frame[:begin] + frame[begin + size : position], correlation_id, begin
