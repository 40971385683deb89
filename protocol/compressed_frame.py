"""Checks that compressed records are one frame that every consumer reads.

Decoders differ in what they take beyond that. The broker's own goes on into a second frame, as Go's does; Java's stops
behind the first, and librdkafka refuses the batch. Stored, such a batch blocks its partition for some consumers, so a
produced one is refused; what is already stored is read as leniently as ever. Required of

* LZ4: one frame, independent blocks of which none is empty, no dictionary, no reserved flags, an end mark, and nothing
  behind the frame;
* Zstandard: one frame that is not skippable, no dictionary, a window of at most 128 MiB (Java's limit), no block
  larger than the window (Go's), a last block, and
  nothing behind the frame;
* gzip: names and comments of at most 511 bytes (Go's limit). The end of its deflate stream only `compression.decompress`
  knows.

Checksums are the decoder's
to verify. `docs/differences.md` says what Kafka does.
"""

from __future__ import annotations

from typing import Final

from echoless.protocol.errors import DecodeError, ExpansionError
from echoless.protocol.record_batch import Buffer, Codec

_GZIP_HEADER_BYTES: Final = 10
_GZIP_EXTRA: Final = 0x04
_GZIP_TEXTS: Final = (0x08, 0x10)
"""A name, and a comment."""
_GZIP_TEXT_BYTES_MAX: Final = 511
_LZ4_MAGIC: Final = 0x184D2204
_LZ4_VERSION: Final = 0x40
_LZ4_RESERVED: Final = 0x02
_LZ4_CONTENT_SIZE: Final = 0x08
_LZ4_CONTENT_CHECKSUM: Final = 0x04
_LZ4_DICTIONARY: Final = 0x01
_LZ4_BLOCK_CHECKSUM: Final = 0x10
_LZ4_INDEPENDENT_BLOCKS: Final = 0x20
_LZ4_EMPTY_BLOCK: Final = 1
"""The size of a compressed block without content: a token, and no literals."""
_ZSTD_MAGIC: Final = 0xFD2FB528
_ZSTD_SINGLE_SEGMENT: Final = 0x20
_ZSTD_RESERVED: Final = 0x08
_ZSTD_CHECKSUM: Final = 0x04
_ZSTD_DICTIONARY: Final = 0x03
_ZSTD_RLE: Final = 1
_ZSTD_BLOCK_BYTES_MAX: Final = 128 * 1024
"""The limit of the format, which is the window if that is smaller."""
_ZSTD_SIZE_BYTES: Final = (0, 2, 4, 8)
_WINDOW_LOG_MAX: Final = 27
_CHECKSUM_BYTES: Final = 4
_BLOCK_BYTES_MIN: Final = 256
"""Least weight of a block, so that many empty ones reach the limit on decompressed bytes, too."""


def check_frame(codec: Codec, data: Buffer, bytes_max: int) -> None:
    """Raises `DecodeError` if some consumer would not read all of `data`.

    `ExpansionError` if it has more blocks than `bytes_max` decompressed bytes could need.
    """
    if codec is Codec.LZ4:
        _check_end("lz4", data, _lz4_end(data, bytes_max // _BLOCK_BYTES_MIN))
    elif codec is Codec.ZSTD:
        _check_end("zstd", data, _zstd_end(data, bytes_max // _BLOCK_BYTES_MIN))
    elif codec is Codec.GZIP:
        _check_gzip_texts(data)


def _check_end(name: str, data: Buffer, end: int) -> None:
    if end > len(data):
        raise DecodeError(f"the {name} frame ends before its last block")
    if end < len(data):
        raise DecodeError(f"{len(data) - end} bytes follow the {name} frame; consumers read one")


def _check_gzip_texts(data: Buffer) -> None:
    """The texts of the first member's header; what else is wrong with it the decoder says."""
    if len(data) < _GZIP_HEADER_BYTES:
        return
    flags, position = data[3], _GZIP_HEADER_BYTES
    if flags & _GZIP_EXTRA:
        position += 2 + int.from_bytes(data[position : position + 2], "little")
    for flag in _GZIP_TEXTS:
        if flags & flag:
            text = bytes(data[position : position + _GZIP_TEXT_BYTES_MAX + 1])
            size = text.find(0)
            if size < 0 and len(text) <= _GZIP_TEXT_BYTES_MAX:
                return
            if size < 0:
                raise DecodeError(
                    f"a gzip member has a name or comment of more than {_GZIP_TEXT_BYTES_MAX} bytes, "
                    "which consumers in Go refuse; leave it out"
                )
            position += size + 1


def _lz4_end(data: Buffer, blocks_max: int) -> int:
    """The position behind the frame, which is beyond the data if that ends too early."""
    _check_magic("lz4", data, _LZ4_MAGIC)
    flags = data[4]
    if flags & 0xC0 != _LZ4_VERSION or flags & _LZ4_RESERVED:
        raise DecodeError(f"an lz4 frame has flags {flags:#04x}, which consumers do not know")
    if flags & _LZ4_DICTIONARY:
        raise DecodeError("an lz4 frame needs a dictionary, which no consumer has")
    if not flags & _LZ4_INDEPENDENT_BLOCKS:
        raise DecodeError("an lz4 frame needs independent blocks, Kafka reads no others")
    position = 15 if flags & _LZ4_CONTENT_SIZE else 7
    checksum = _CHECKSUM_BYTES if flags & _LZ4_BLOCK_CHECKSUM else 0
    for _ in range(blocks_max + 1):
        stated = int.from_bytes(data[position : position + 4], "little")
        if stated == _LZ4_EMPTY_BLOCK:
            raise DecodeError("an lz4 block holds nothing; consumers in Java stop there")
        size = stated & 0x7FFFFFFF
        position += 4
        if not size:
            return position + (_CHECKSUM_BYTES if flags & _LZ4_CONTENT_CHECKSUM else 0)
        position += size + checksum
    raise ExpansionError(f"an lz4 frame of more than {blocks_max} blocks")


def _zstd_end(data: Buffer, blocks_max: int) -> int:
    """The position behind the frame, which is beyond the data if that ends too early."""
    _check_magic("zstd", data, _ZSTD_MAGIC)
    descriptor = data[4]
    if descriptor & _ZSTD_DICTIONARY:
        raise DecodeError("a zstd frame needs a dictionary, which no consumer has")
    if descriptor & _ZSTD_RESERVED:
        raise DecodeError(f"a zstd frame has flags {descriptor:#04x}, which consumers do not know")
    position = 5
    size_bytes = _ZSTD_SIZE_BYTES[descriptor >> 6]
    block_bytes_max = _ZSTD_BLOCK_BYTES_MAX
    if descriptor & _ZSTD_SINGLE_SEGMENT:
        size_bytes = size_bytes or 1
    else:
        exponent, eighths = data[position] >> 3, data[position] & 7
        if exponent > _WINDOW_LOG_MAX - 10:
            raise DecodeError(f"a zstd window is limited to {1 << _WINDOW_LOG_MAX} bytes")
        block_bytes_max = min(block_bytes_max, (1 << 7 + exponent) * (8 + eighths))
        position += 1
    position += size_bytes
    for _ in range(blocks_max + 1):
        block = int.from_bytes(data[position : position + 3], "little")
        if block >> 3 > block_bytes_max:
            raise DecodeError(f"a zstd block of {block >> 3} bytes exceeds its {block_bytes_max}")
        position += 3 + (1 if block >> 1 & 3 == _ZSTD_RLE else block >> 3)
        if block & 1 or position > len(data):
            return position + (_CHECKSUM_BYTES if descriptor & _ZSTD_CHECKSUM else 0)
    raise ExpansionError(f"a zstd frame of more than {blocks_max} blocks")


def _check_magic(name: str, data: Buffer, magic: int) -> None:
    """The magic number, and that something follows it."""
    if len(data) < 7 or int.from_bytes(data[:4], "little") != magic:
        raise DecodeError(f"{len(data)} bytes do not begin with a {name} frame")
