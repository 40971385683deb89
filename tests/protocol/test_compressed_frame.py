"""Produced records are one frame that every consumer reads, from any encoder."""

from __future__ import annotations

import gzip
import struct
import zlib
from collections.abc import Callable
from typing import Any

import cramjam
import lz4.frame
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from echoless.protocol.compression import compress, decompress
from echoless.protocol.errors import DecodeError, ExpansionError
from echoless.protocol.record_batch import Codec

DATA = b"".join(b'{"order":%d}' % number for number in range(300))
FRAMED = (Codec.GZIP, Codec.LZ4, Codec.ZSTD)
LZ4 = lz4.frame.compress
SKIPPABLE = struct.pack("<II", 0x184D2A50, 3) + b"abc"


def one_frame(codec: Codec, data: Any, bytes_max: int = 1 << 20) -> bytes:
    return bytes(decompress(codec, data, bytes_max, one_frame=True))


def lz4_streamed(data: bytes, **options: Any) -> bytes:
    """As a client that compresses record by record: blocks of any size, and flushed ones."""
    with lz4.frame.LZ4FrameCompressor(block_linked=False, auto_flush=True, **options) as one:
        pieces = [one.begin(), *(one.compress(data[n : n + 7]) for n in range(0, len(data), 7))]
        return b"".join([*pieces, one.flush()])


def zstd_streamed(data: bytes, **options: Any) -> bytes:
    one = zstandard.ZstdCompressor(**options).compressobj()
    pieces = [
        one.compress(data[n : n + 50]) + one.flush(zstandard.COMPRESSOBJ_FLUSH_BLOCK)
        for n in range(0, len(data), 50)
    ]
    return b"".join([*pieces, one.flush()])


ENCODERS: list[tuple[Codec, Callable[[bytes], bytes]]] = [
    (Codec.GZIP, gzip.compress),
    (Codec.GZIP, lambda data: bytes(cramjam.gzip.compress(data, level=9))),
    (Codec.LZ4, lambda data: LZ4(data, block_linked=False)),
    (Codec.LZ4, lambda data: LZ4(data, block_linked=False, content_checksum=True)),
    (Codec.LZ4, lambda data: LZ4(data, block_linked=False, block_checksum=True, store_size=False)),
    (Codec.LZ4, lz4_streamed),
    (Codec.LZ4, lambda data: lz4_streamed(data, block_checksum=True, content_checksum=True)),
    (Codec.ZSTD, zstandard.compress),
    (Codec.ZSTD, zstandard.ZstdCompressor(level=19, write_checksum=True).compress),
    (Codec.ZSTD, zstandard.ZstdCompressor(write_content_size=False).compress),
    (Codec.ZSTD, zstd_streamed),
    (Codec.ZSTD, lambda data: zstd_streamed(data, write_checksum=True)),
]


@pytest.mark.parametrize(("codec", "encode"), ENCODERS)
@given(data=st.binary(min_size=1, max_size=2000), repetitions=st.integers(1, 60))
def test_what_encoders_write_is_read(codec, encode, data, repetitions):
    """With and without sizes and checksums, at once and in pieces."""
    original = data * repetitions
    assert one_frame(codec, encode(original)) == original


@pytest.mark.parametrize(("codec", "encode"), ENCODERS)
def test_a_frame_is_whole(codec, encode):
    """Cut at any byte it is refused, and so is any byte behind it."""
    frame = encode(DATA)
    for size in range(len(frame)):
        with pytest.raises(DecodeError):
            one_frame(codec, frame[:size])
    for byte in (0, 0xFF):
        with pytest.raises(DecodeError):
            one_frame(codec, frame + bytes([byte]))


@pytest.mark.parametrize("codec", FRAMED)
def test_there_is_one_frame(codec):
    """Java reads the first alone, librdkafka refuses the batch; the empty one may come first or last."""
    frame, empty = compress(codec, DATA), compress(codec, b"")
    for data in (frame + frame, empty + frame, frame + empty, empty + empty):
        with pytest.raises(DecodeError):
            one_frame(codec, data)
    assert bytes(decompress(codec, frame + frame)) == DATA + DATA, "what is stored is still read"


@pytest.mark.parametrize("codec", [Codec.LZ4, Codec.ZSTD])
def test_skippable_frames_are_refused(codec):
    """Kafka takes their magic number for damage."""
    for data in (SKIPPABLE + compress(codec, DATA), compress(codec, DATA) + SKIPPABLE, SKIPPABLE):
        with pytest.raises(DecodeError):
            one_frame(codec, data)


def test_lz4_blocks_that_hold_nothing_are_refused():
    """Java fails at one, wherever it is; the decoder here goes on behind it."""
    frame = LZ4(DATA, block_linked=False, store_size=False)
    for empty in (b"\x01\0\0\0\0", b"\x01\0\0\0\x0f", b"\0\0\0\x80"):
        for position in (7, len(frame) - 4):
            changed = frame[:position] + empty + frame[position:]
            with pytest.raises(DecodeError):
                one_frame(Codec.LZ4, changed)


def test_dictionaries_are_refused():
    """No consumer has them; decoders here would not complain about the id alone."""
    frame = bytearray(LZ4(DATA, block_linked=False))
    frame[4] |= 1
    with pytest.raises(DecodeError, match="dictionary"):
        one_frame(Codec.LZ4, frame)
    samples = [b"order %d of customer %d" % (n, n * 7) for n in range(500)]
    dictionary = zstandard.train_dictionary(2000, samples)
    with pytest.raises(DecodeError, match="dictionary"):
        one_frame(Codec.ZSTD, zstandard.ZstdCompressor(dict_data=dictionary).compress(DATA))


def test_windows_are_bounded():
    """Java's decoder refuses more than 128 MiB."""
    frame = bytearray(zstd_streamed(DATA))
    assert not frame[4] & 0x20
    frame[5] = 17 << 3
    assert one_frame(Codec.ZSTD, frame) == DATA
    frame[5] = 18 << 3
    with pytest.raises(DecodeError, match="window"):
        one_frame(Codec.ZSTD, frame)


def gzip_named(flags: int, *texts: bytes) -> bytes:
    """A member with these texts, of which the flags say whether they are names or comments."""
    header = b"\x1f\x8b\x08" + bytes([flags]) + bytes(6)
    if flags & 0x04:
        header += b"\x05\0extra"
    header += b"".join(text + b"\0" for text in texts)
    if flags & 0x02:
        header += (zlib.crc32(header) & 0xFFFF).to_bytes(2, "little")
    deflate = zlib.compressobj(wbits=-15)
    body = deflate.compress(DATA) + deflate.flush()
    return header + body + struct.pack("<II", zlib.crc32(DATA), len(DATA))


@pytest.mark.parametrize("flags", [0x08, 0x10, 0x0A, 0x1C, 0x1F])
def test_names_in_gzip_are_bounded(flags):
    """Go's reader refuses a name or comment of more than 511 bytes; all others take it."""
    last = 511
    texts = [b"n"] * ((flags & 0x18 == 0x18) + 1)
    for one in range(len(texts)):
        for size in (0, last):
            short = [*texts[:one], b"n" * size, *texts[one + 1 :]]
            assert one_frame(Codec.GZIP, gzip_named(flags, *short)) == DATA
        for size in (last + 1, 70_000):
            long = gzip_named(flags, *texts[:one], b"n" * size, *texts[one + 1 :])
            with pytest.raises(DecodeError, match="511"):
                one_frame(Codec.GZIP, long)
            assert decompress(Codec.GZIP, long) == DATA, "what is stored is still read"


def test_zstd_blocks_fit_into_the_window():
    """Go's decoder refuses a larger one, which the others take if it is not compressed."""
    for window, bytes_max in ((0, 1024), (1, 1152), (5 << 3, 32 * 1024), (10 << 3, 128 * 1024)):
        for size in (bytes_max, bytes_max + 1):
            block = (1 | size << 3).to_bytes(3, "little") + b"x" * size
            frame = b"\x28\xb5\x2f\xfd\x00" + bytes([window]) + block
            if size == bytes_max:
                assert one_frame(Codec.ZSTD, frame) == b"x" * size
                continue
            with pytest.raises(DecodeError):
                one_frame(Codec.ZSTD, frame)


def test_many_empty_blocks_reach_the_limit():
    """Walking over them costs time without any decompressed byte."""
    header = zstd_streamed(DATA)[:6]
    frame = header + bytes(3) * 5000 + b"\x01\0\0"
    with pytest.raises(ExpansionError, match="blocks"):
        one_frame(Codec.ZSTD, frame)
    assert one_frame(Codec.ZSTD, frame, 2_000_000) == b""
