"""Zstandard frames from a library and by hand: sizes, windows, checksums, dictionaries, several frames."""

from __future__ import annotations

import functools
import random
import struct

import zstandard

from tests.compatibility.payloads.encoded import Encoded, junk, pieces

_MAGIC = b"\x28\xb5\x2f\xfd"
_BLOCK_BYTES_MAX = 128 * 1024
_RAW, _RLE, _COMPRESSED, _RESERVED = range(4)


def encode(rng: random.Random, data: bytes) -> Encoded:
    """One frame, and sometimes what stands around it."""
    frame, about = (_by_library if rng.random() < 0.5 else _by_hand)(rng, data)
    around = rng.choice(
        ("",) * 12 + ("junk", "second", "empty second", "skippable", "skippable first")
    )
    if around == "junk":
        frame += junk(rng)
    elif around == "second":
        half = rng.randrange(len(data) + 1)
        frame = _by_library(rng, data[:half])[0] + _by_hand(rng, data[half:])[0]
    elif around == "empty second":
        frame += zstandard.compress(b"")
    elif around == "skippable":
        frame += struct.pack("<II", 0x184D2A50 + rng.randrange(16), 3) + b"abc"
    elif around == "skippable first":
        frame = struct.pack("<II", 0x184D2A50 + rng.randrange(16), 3) + b"abc" + frame
    return Encoded(frame, f"zstd: {about}, {around or 'one frame'}")


@functools.cache
def _dictionary() -> zstandard.ZstdCompressionDict:
    samples = [b"order %d of customer %d" % (n, n * 7) for n in range(500)]
    return zstandard.train_dictionary(2000, samples)


def _by_library(rng: random.Random, data: bytes) -> tuple[bytes, str]:
    options = {
        "write_checksum": rng.random() < 0.5,
        "write_content_size": rng.random() < 0.5,
        "write_dict_id": rng.random() < 0.5,
    }
    window = rng.choice((10, 11, 17, 20, 24, 27, 28))
    level = rng.choice((-50, -1, 1, 3, 9, 19))
    form = zstandard.FORMAT_ZSTD1_MAGICLESS if rng.random() < 0.03 else zstandard.FORMAT_ZSTD1
    parameters = zstandard.ZstdCompressionParameters.from_level(
        level, window_log=window, format=form, enable_ldm=rng.random() < 0.1, **options
    )
    dictionary = _dictionary() if rng.random() < 0.05 else None
    about = f"library, level {level}, window 2**{window}, {options}, dictionary {dictionary is not None}, format {form}"
    one = zstandard.ZstdCompressor(compression_params=parameters, dict_data=dictionary)
    if rng.random() < 0.5:
        return one.compress(data), about
    streamed = one.compressobj()
    out = bytearray()
    for piece in pieces(rng, data, rng.choice((1000, 100_000, 1 << 20))):
        out += streamed.compress(piece)
        if rng.random() < 0.3:
            out += streamed.flush(zstandard.COMPRESSOBJ_FLUSH_BLOCK)
    return bytes(out + streamed.flush()), f"{about}, streamed"


def _by_hand(rng: random.Random, data: bytes) -> tuple[bytes, str]:
    """Raw and repeated blocks; fields are right but for one, at times."""
    wrong = rng.choice(
        ("",) * 12
        + (
            "content size",
            "reserved bit",
            "unused bit",
            "dictionary 0",
            "dictionary",
            "window",
            "block size",
        )
        + ("block type", "no end", "checksum", "small window", "empty block", "empty last")
    )
    is_single = rng.random() < 0.5
    size_code = rng.choice(
        [code for code in (0, 1, 2, 3) if _fits(code, len(data), is_single=is_single)]
    )
    has_checksum = wrong == "checksum"  # a right one takes an xxh64, which the library writes
    descriptor = size_code << 6 | is_single << 5 | has_checksum << 2
    descriptor |= {"reserved bit": 8, "unused bit": 16, "dictionary 0": 1, "dictionary": 1}.get(
        wrong, 0
    )
    out = bytearray(_MAGIC + bytes((descriptor,)))
    window = 1 << 20
    if not is_single:
        exponent, mantissa = rng.choice(((0, 0), (0, 1), (5, 0), (7, 7), (10, 3), (17, 0)))
        if wrong == "window":
            exponent = rng.choice((17, 18, 21, 31))
        window = (1 << 10 + exponent) + ((1 << 10 + exponent) >> 3) * mantissa
        out.append(exponent << 3 | mantissa)
    if wrong.startswith("dictionary"):
        out.append(0 if wrong == "dictionary 0" else 7)
    stated = len(data) + (rng.choice((-1, 1)) if wrong == "content size" else 0)
    out += _content_size(size_code, max(stated, 0), is_single=is_single)
    bytes_max = min(window, max(len(data), 1) if is_single else window, _BLOCK_BYTES_MAX)
    if wrong == "block size":
        bytes_max = min(bytes_max * 2, (1 << 21) - 1)
    found = pieces(rng, data, bytes_max) or [b""]
    if wrong == "empty block":
        found.insert(rng.randrange(len(found)), b"")
    for number, piece in enumerate(found):
        is_last = number == len(found) - 1 and wrong not in ("no end", "empty last")
        out += _block(rng, piece, wrong, is_last=is_last)
    if wrong == "empty last":
        out += b"\x01\0\0"
    if has_checksum:
        out += rng.randbytes(4)
    return bytes(out), f"descriptor {descriptor:#04x}, window {window}, wrong: {wrong or 'nothing'}"


def _block(rng: random.Random, data: bytes, wrong: str, *, is_last: bool) -> bytes:
    kind, body = _RAW, data
    if data and data == data[:1] * len(data) and rng.random() < 0.8:
        kind, body = _RLE, data[:1]
    if wrong == "block type":
        kind = rng.choice((_COMPRESSED, _RESERVED))
    return (is_last | kind << 1 | len(data) << 3).to_bytes(3, "little") + body


def _fits(code: int, size: int, *, is_single: bool) -> bool:
    if code == 0:
        return not is_single or size < 256
    if code == 1:
        return 256 <= size < 256 + (1 << 16)
    return True


def _content_size(code: int, size: int, *, is_single: bool) -> bytes:
    if code == 0:
        return bytes((size & 0xFF,)) if is_single else b""
    if code == 1:
        return struct.pack("<H", max(size - 256, 0) & 0xFFFF)
    return size.to_bytes(4 if code == 2 else 8, "little")
