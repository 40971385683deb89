"""Zigzag varints, the numbers inside a record: seven bits a byte, lowest first, sign in bit 0.

Format: Kafka's `ByteUtils` (protocol buffers' sint32 and sint64). Reading refuses numbers that
exceed the claimed width; Kafka truncates them silently. Called by `records` and `record_check`.
"""

from __future__ import annotations

from typing import Final

from echoless.protocol.errors import DecodeError
from echoless.protocol.record_batch import Buffer

VARINT_BITS: Final = 32
VARLONG_BITS: Final = 64


def read_varint(data: Buffer, position: int, bits: int = VARINT_BITS) -> tuple[int, int]:
    """The number at `position` and the position after it.

    Raises `DecodeError` when the data ends inside the number or it takes more than `bits`.
    """
    try:
        raw = data[position]
        if raw < 0x80:  # one byte and, below, two: nearly every number, three times as fast
            return (raw >> 1) ^ -(raw & 1), position + 1
        byte = data[position + 1]
        raw = raw & 0x7F | (byte & 0x7F) << 7
        if byte < 0x80:
            return (raw >> 1) ^ -(raw & 1), position + 2
        position += 1
        for shift in range(14, bits, 7):
            position += 1
            byte = data[position]
            raw |= (byte & 0x7F) << shift
            if byte < 0x80:
                break
        else:
            raise DecodeError(f"a number at byte {position} of the records never ends")
    except IndexError:
        raise DecodeError(f"the records end inside a number at byte {len(data)}") from None
    if raw >> bits:
        raise DecodeError(f"a number at byte {position} of the records exceeds {bits} bits")
    return (raw >> 1) ^ -(raw & 1), position + 1


def write_varint(target: bytearray, value: int) -> None:
    """Appends `value`; any int that fits 64 bits signed."""
    if 0 <= value < 0x40:  # nearly every number is a small length or difference
        target.append(value << 1)
        return
    raw = (value << 1) ^ (value >> 63)
    while raw > 0x7F:
        target.append(raw & 0x7F | 0x80)
        raw >>= 7
    target.append(raw)
