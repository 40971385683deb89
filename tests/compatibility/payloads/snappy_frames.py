"""Snappy blocks, bare and in xerial's stream, from an encoder and by hand."""

from __future__ import annotations

import random
import struct

import cramjam

from tests.compatibility.payloads.encoded import Encoded, junk, pieces

_MAGIC = b"\x82SNAPPY\x00"


def encode(rng: random.Random, data: bytes) -> Encoded:
    """A bare block or a stream."""
    if rng.random() < 0.4:
        block, about = _block(rng, data)
        behind = junk(rng) if rng.random() < 0.1 else b""
        return Encoded(block + behind, f"snappy: bare block, {about}, {len(behind)} bytes behind")
    versions = rng.choice(
        ((1, 1),) * 6 + ((2, 1), (1, 2), (0, 0), (0, 1), (-1, 1), (2**31 - 1,) * 2)
    )
    bytes_max = rng.choice((1, 200, 32 * 1024, 32 * 1024, 64 * 1024, 1 << 20))
    stream, about = bytearray(_MAGIC + struct.pack(">ii", *versions)), ""
    for piece in pieces(rng, data, max(bytes_max, len(data) // 200)):
        block, about = _block(rng, piece)
        stream += struct.pack(">i", len(block)) + block
        odd = rng.random()
        if odd < 0.02:
            stream += struct.pack(">i", 1) + b"\0"
            about += ", empty block"
        elif odd < 0.03:
            stream += bytes(stream[:16])
            about += ", a second header"
    behind = rng.choice(
        (b"",) * 6 + (junk(rng), struct.pack(">i", 0), struct.pack(">i", 1) + b"\0")
    )
    return Encoded(
        bytes(stream) + behind,
        f"snappy: stream of versions {versions}, blocks of {bytes_max}, {about}, {len(behind)} bytes behind",
    )


def _block(rng: random.Random, data: bytes) -> tuple[bytes, str]:
    if rng.random() < 0.7:
        return bytes(cramjam.snappy.compress_raw(data)), "compressed"
    size = _varint(len(data))
    about = "by hand"
    if rng.random() < 0.1 and len(size) < 5:
        size = size[:-1] + bytes((size[-1] | 0x80, 0))
        about += ", longer size"
    elif rng.random() < 0.05:
        size = _varint(max(len(data) + rng.choice((-1, 1)), 0))
        about += ", wrong size"
    return size + _elements(rng, data), about


def _elements(rng: random.Random, data: bytes) -> bytes:
    """Literals in all forms, and copies where the same bytes came before."""
    out, position = bytearray(), 0
    while position < len(data):
        size = min(rng.choice((1, 4, 59, 60, 61, 300, 70_000)), len(data) - position)
        copied = min(size, 64)
        found = data.rfind(data[position : position + copied], max(0, position - 100_000), position)
        if found >= 0 and copied >= 4 and rng.random() < 0.8:
            out += _copy(rng, position - found, copied)
            position += copied
        else:
            out += _literal(rng, data[position : position + size])
            position += size
    return bytes(out)


def _literal(rng: random.Random, data: bytes) -> bytes:
    size = len(data) - 1
    forms = [extra for extra in (1, 2, 3, 4) if size < 1 << 8 * extra]
    if size < 60 and rng.random() < 0.8:
        return bytes((size << 2,)) + data
    extra = rng.choice(forms[:1] * 4 + forms)
    return bytes((59 + extra << 2,)) + size.to_bytes(extra, "little") + data


def _copy(rng: random.Random, offset: int, size: int) -> bytes:
    forms = (
        ["four"] + ["two"] * (offset < 1 << 16) + ["one"] * (offset < 1 << 11 and 4 <= size <= 11)
    )
    form = rng.choice(forms)
    if form == "one":
        return bytes((1 | size - 4 << 2 | offset >> 8 << 5, offset & 0xFF))
    if form == "two":
        return bytes((2 | size - 1 << 2,)) + offset.to_bytes(2, "little")
    return bytes((3 | size - 1 << 2,)) + offset.to_bytes(4, "little")


def _varint(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])
