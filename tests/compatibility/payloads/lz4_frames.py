"""LZ4 frames with every combination of flags, written block by block."""

from __future__ import annotations

import random
import struct

import lz4.block
import lz4.frame

from tests.compatibility.payloads.encoded import Encoded, junk, pieces

_MAGIC = b"\x04\x22\x4d\x18"
_LEGACY = b"\x02\x21\x4c\x18"
_BLOCK_BYTES = {4: 1 << 16, 5: 1 << 18, 6: 1 << 20, 7: 1 << 22}
_UNCOMPRESSED = 1 << 31
_MASK = 0xFFFFFFFF
_PRIMES = (2654435761, 2246822519, 3266489917, 668265263, 374761393)


def encode(rng: random.Random, data: bytes) -> Encoded:
    """One frame by a library or by hand, and sometimes what stands around it."""
    frame, about = (_by_library if rng.random() < 0.3 else _by_hand)(rng, data)
    around = rng.choice(
        ("",) * 12 + ("junk", "second", "empty second", "skippable", "skippable first", "legacy")
    )
    if around == "junk":
        frame += junk(rng)
    elif around == "second":
        half = rng.randrange(len(data) + 1)
        frame = _by_hand(rng, data[:half])[0] + _by_hand(rng, data[half:])[0]
    elif around == "empty second":
        frame += lz4.frame.compress(b"", block_linked=False)
    elif around == "skippable":
        frame += struct.pack("<II", 0x184D2A50 + rng.randrange(16), 3) + b"abc"
    elif around == "skippable first":
        frame = struct.pack("<II", 0x184D2A50 + rng.randrange(16), 3) + b"abc" + frame
    elif around == "legacy":
        block = lz4.block.compress(data, store_size=False)
        frame = _LEGACY + struct.pack("<I", len(block)) + block
    return Encoded(frame, f"lz4: {about}, {around or 'one frame'}")


def _by_library(rng: random.Random, data: bytes) -> tuple[bytes, str]:
    options = {
        "block_size": rng.choice((0, 4, 5, 6, 7)),
        "compression_level": rng.choice((-5, 0, 1, 9, 16)),
        "content_checksum": rng.random() < 0.5,
        "block_checksum": rng.random() < 0.5,
        "block_linked": rng.random() < 0.1,
    }
    return lz4.frame.compress(data, store_size=rng.random() < 0.5, **options), f"library, {options}"


def _by_hand(rng: random.Random, data: bytes) -> tuple[bytes, str]:
    """Fields are right but for one, at times."""
    wrong = rng.choice(
        ("",) * 14
        + (
            "version",
            "linked",
            "reserved",
            "dictionary",
            "block size",
            "descriptor",
            "header checksum",
        )
        + (
            "block checksum",
            "content checksum",
            "content size",
            "long block",
            "no end",
            "empty block",
        )
        + ("uncompressed end",)
    )
    has_size, has_checksum, blocks_checked = (rng.random() < 0.5 for _ in range(3))
    flags = 0x60 | 0x08 * has_size | 0x04 * has_checksum | 0x10 * blocks_checked
    flags ^= {"version": 0x80, "linked": 0x20, "reserved": 0x02, "dictionary": 0x01}.get(wrong, 0)
    code = rng.choice((4, 5, 6, 7))
    descriptor = (rng.randrange(4) if wrong == "block size" else code) << 4
    descriptor |= rng.choice((1, 0x80)) if wrong == "descriptor" else 0
    fields = bytes((flags, descriptor))
    if has_size:
        fields += struct.pack(
            "<Q",
            len(data) + (rng.choice((1, -1, 1 << 40)) if wrong == "content size" else 0)
            & (1 << 64) - 1,
        )
    if wrong == "dictionary":
        fields += struct.pack("<I", rng.choice((0, 1)))
    out = bytearray(_MAGIC + fields)
    out.append((xxh32(fields) >> 8 & 0xFF) ^ (wrong == "header checksum"))
    bytes_max = _BLOCK_BYTES[code] * (2 if wrong == "long block" else 1)
    for piece in pieces(rng, data, bytes_max):
        out += _block(rng, piece, wrong, checked=blocks_checked)
        if wrong == "empty block" and rng.random() < 0.5:
            out += _block(rng, b"", wrong, checked=blocks_checked)
    if wrong == "uncompressed end":
        out += struct.pack("<I", _UNCOMPRESSED)
    elif wrong != "no end":
        out += bytes(4)
    if has_checksum:
        out += struct.pack("<I", xxh32(data) ^ (wrong == "content checksum"))
    return bytes(
        out
    ), f"flags {flags:#04x}, descriptor {descriptor:#04x}, wrong: {wrong or 'nothing'}"


def _block(rng: random.Random, data: bytes, wrong: str, *, checked: bool) -> bytes:
    block = lz4.block.compress(
        data, store_size=False, mode=rng.choice(("default", "high_compression"))
    )
    mark = 0
    is_raw = rng.random() < 0.3 or len(block) >= len(data)
    if is_raw and (wrong != "empty block" or rng.random() < 0.5):
        block, mark = data, _UNCOMPRESSED
    out = struct.pack("<I", len(block) | mark) + block
    return out + struct.pack("<I", xxh32(block) ^ (wrong == "block checksum")) * checked


def xxh32(data: bytes) -> int:
    """The checksum of the format, with seed 0."""
    one, two, three, four, five = _PRIMES
    position, total = 0, five
    if len(data) >= 16:
        lanes = [one + two & _MASK, two, 0, -one & _MASK]
        words = struct.unpack(f"<{len(data) // 16 * 4}I", data[: len(data) // 16 * 16])
        for index, word in enumerate(words):
            lane = lanes[index & 3] + word * two & _MASK
            lanes[index & 3] = (lane << 13 | lane >> 19) * one & _MASK
        position = len(words) * 4
        total = sum(
            (lane << turn | lane >> 32 - turn) & _MASK
            for lane, turn in zip(lanes, (1, 7, 12, 18), strict=True)
        )
    total = total + len(data) & _MASK
    while position + 4 <= len(data):
        (word,) = struct.unpack_from("<I", data, position)
        total = total + word * three & _MASK
        total = (total << 17 | total >> 15) * four & _MASK
        position += 4
    for byte in data[position:]:
        total = total + byte * five & _MASK
        total = (total << 11 | total >> 21) * one & _MASK
    total = (total ^ total >> 15) * two & _MASK
    total = (total ^ total >> 13) * three & _MASK
    return total ^ total >> 16
