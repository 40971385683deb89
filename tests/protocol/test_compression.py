"""The five codecs: round trips, both snappy shapes, damage, and bounded growth."""

from __future__ import annotations

import contextlib
import struct

import cramjam
import pytest
from hypothesis import given
from hypothesis import strategies as st

from echoless.protocol.compression import compress, decompress
from echoless.protocol.errors import DecodeError
from echoless.protocol.record_batch import Codec

COMPRESSED = [codec for codec in Codec if codec is not Codec.NONE]
XERIAL = b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)


@given(st.sampled_from(list(Codec)), st.binary(max_size=300), st.integers(1, 400))
def test_round_trip(codec, data, repetitions):
    """Compressed data decompresses to the original, at any size."""
    original = data * repetitions
    assert decompress(codec, compress(codec, original)) == original


@pytest.mark.parametrize("codec", list(Codec))
def test_any_buffer_goes_in(codec):
    """Views and bytearrays, as they come out of receive buffers, do as well as bytes."""
    compressed = compress(codec, bytearray(b"echo" * 99))
    assert decompress(codec, memoryview(compressed)) == b"echo" * 99
    assert decompress(codec, bytearray(compressed)) == b"echo" * 99


def test_both_snappy_shapes_are_read():
    """librdkafka writes one bare block, Java a xerial stream of blocks."""
    block = bytes(cramjam.snappy.compress_raw(b"echo" * 9))
    stream = XERIAL + (struct.pack(">i", len(block)) + block) * 2
    assert decompress(Codec.SNAPPY, block) == b"echo" * 9
    assert decompress(Codec.SNAPPY, stream) == b"echo" * 18


def test_long_snappy_streams_have_several_blocks():
    """Blocks of 32 KiB: Java's reader has buffers of that size."""
    compressed = compress(Codec.SNAPPY, bytes(100_000))
    assert compressed.startswith(XERIAL)
    assert decompress(Codec.SNAPPY, compressed) == bytes(100_000)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        XERIAL + b"\0\0\0",
        XERIAL + b"\0\0\0\0",
        XERIAL + struct.pack(">i", -5) + b"12345",
        XERIAL + struct.pack(">i", 99) + b"12345",
        XERIAL + struct.pack(">i", 5) + b"\xff" * 5,
        XERIAL[:10],
        b"\xff\xff\xff\xff\x0f" + b"bomb",
    ],
)
def test_damaged_snappy_is_refused(data):
    """Lengths that lie, empty blocks and blocks that are none raise DecodeError."""
    with pytest.raises(DecodeError):
        decompress(Codec.SNAPPY, data)


@pytest.mark.parametrize("codec", COMPRESSED)
def test_growth_is_bounded(codec):
    """A few bytes that claim to be many are refused without the memory for the many."""
    bomb = compress(codec, bytes(5_000_000))
    assert len(bomb) < 300_000
    assert len(decompress(codec, bomb, bytes_max=5_000_000)) == 5_000_000
    with pytest.raises(DecodeError, match=r"at most|allowed"):
        decompress(codec, bomb, bytes_max=4_999_999)


@pytest.mark.parametrize("codec", COMPRESSED)
def test_truncation_is_refused(codec):
    """Cut at any byte, no compressed data passes for whole."""
    compressed = compress(codec, b"".join(bytes([n, n ^ 7]) for n in range(120)))
    for size in range(len(compressed)):
        if codec is Codec.SNAPPY and size == len(XERIAL):
            continue  # a stream without blocks is whole, and empty
        with pytest.raises(DecodeError):
            decompress(codec, compressed[:size])


@given(st.sampled_from(COMPRESSED), st.binary(max_size=100))
def test_noise_is_refused_or_harmless(codec, noise):
    """Random bytes raise DecodeError and nothing else, or are by chance small data."""
    with contextlib.suppress(DecodeError):
        assert len(decompress(codec, noise, bytes_max=1000)) <= 1000


@pytest.mark.parametrize("codec_id", [5, 6, 7])
def test_unknown_codec_is_refused(codec_id):
    """Three bits can name codecs that do not exist."""
    with pytest.raises(DecodeError, match=f"codec {codec_id}"):
        decompress(codec_id, b"")


def test_lz4_blocks_are_independent():
    """Kafka's reader takes no linked blocks: bit 5 of the frame's flags is set."""
    assert compress(Codec.LZ4, b"echo")[4] & 0x20


def test_lz4_with_linked_blocks_is_refused():
    """A frame that Kafka's consumers cannot read is damage here, though cramjam reads it."""
    with pytest.raises(DecodeError, match="independent blocks"):
        decompress(Codec.LZ4, bytes(cramjam.lz4.compress(b"echo")), one_frame=True)
