"""Gzip members with any header, any level, and with what decoders differ about."""

from __future__ import annotations

import random
import struct
import zlib

from tests.compatibility.payloads.encoded import Encoded, junk, pieces

_TEXT, _HEADER_CRC, _EXTRA, _NAME, _COMMENT, _RESERVED = 1, 2, 4, 8, 16, 0x20


def encode(rng: random.Random, data: bytes) -> Encoded:
    """One member, nearly always; some have what no consumer or not every one takes."""
    odd = rng.choice(("",) * 14 + ("behind", "second", "empty second", "crc", "size", "zlib"))
    if odd == "zlib":
        return Encoded(zlib.compress(data), "gzip: zlib's format")
    member, about = _member(rng, data, odd)
    if odd == "behind":
        member += junk(rng)
    elif odd == "second":
        half = rng.randrange(len(data) + 1)
        member = _member(rng, data[:half], "")[0] + _member(rng, data[half:], "")[0]
    elif odd == "empty second":
        member += _member(rng, b"", "")[0]
    return Encoded(member, f"gzip: {about}, {odd or 'usual end'}")


def _member(rng: random.Random, data: bytes, odd: str) -> tuple[bytes, str]:
    header, about = _header(rng)
    level = rng.randrange(-1, 10)
    deflate = zlib.compressobj(level, zlib.DEFLATED, -rng.randint(9, 15), rng.randint(1, 9))
    body = bytearray()
    for piece in pieces(rng, data, rng.choice((100, 10_000, 1 << 20))):
        body += deflate.compress(piece)
        if rng.random() < 0.3:
            body += deflate.flush(rng.choice((zlib.Z_SYNC_FLUSH, zlib.Z_FULL_FLUSH)))
    body += deflate.flush()
    crc = zlib.crc32(data) ^ (odd == "crc")
    size = len(data) + (odd == "size") & 0xFFFFFFFF
    return header + body + struct.pack("<II", crc, size), f"level {level}, {about}"


def _header(rng: random.Random) -> tuple[bytes, str]:
    flags = rng.choice(
        (0, 0, rng.randrange(32), rng.randrange(32), rng.randrange(32), rng.randrange(256))
    )
    method = 8 if rng.random() < 0.97 else 7
    times = struct.pack("<IBB", rng.choice((0, rng.randrange(1 << 32))), rng.choice((0, 2, 4)), 255)
    header = bytes((0x1F, 0x8B, method, flags)) + times
    if flags & _EXTRA:
        size = rng.choice((0, 1, 5, 600, 65_535))
        header += struct.pack("<H", size) + rng.randbytes(size)
    texts = []
    for flag in (_NAME, _COMMENT):
        if flags & flag:
            size = rng.choice((0, 1, 30, 500, 510, 511, 512, 513, 2000, 70_000))
            letters = rng.choice((b"abc", b"\xe9\xff", bytes(range(1, 256))))
            header += bytes(rng.choices(letters, k=size)) + b"\0"
            texts.append(size)
    if flags & _HEADER_CRC:
        wrong = rng.random() < 0.1
        header += struct.pack("<H", zlib.crc32(header) & 0xFFFF ^ wrong)
    return header, f"method {method}, flags {flags:#04x}, texts of {texts} bytes"
