"""The five codecs of a batch's records, over cramjam.

Decompression is bounded: a few hundred bytes can claim to be gigabytes. Snappy comes in two
shapes: xerial's stream of blocks, which Java writes, and one bare block, which librdkafka writes;
both are read, the first is written. LZ4 is the frame format, with independent blocks, since Kafka
reads no others. Gzip is zlib's, all others are cramjam's. cramjam is imported with the first compressed batch: uncompressed traffic needs
none of it.
"""

from __future__ import annotations

import mmap
import struct
import zlib
from typing import Final, NamedTuple

from echoless.protocol.compressed_frame import check_frame
from echoless.protocol.errors import DecodeError, ExpansionError
from echoless.protocol.record_batch import (
    CODEC_MASK,
    HEADER_SIZE,
    BatchHeader,
    Buffer,
    Codec,
    read_header,
    seal_batch,
)

DECOMPRESSED_BYTES_MAX: Final = 100 * 1024 * 1024
"""Limit on the decompressed records of one batch; equal to the default limit on a whole request."""

_XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
_XERIAL_HEADER: Final = _XERIAL_MAGIC + struct.pack(">ii", 1, 1)
_XERIAL_BLOCK_LENGTH: Final = struct.Struct(">i")
_XERIAL_BLOCK_BYTES: Final = 32 * 1024
_XERIAL_BLOCK_BYTES_MIN: Final = 256
"""Least weight of one block, so that many empty ones reach the limit too."""
_LARGE_BYTES: Final = 4 * 1024 * 1024
_GZIP_WBITS: Final = 16 + zlib.MAX_WBITS
_GZIP_INPUT_BYTES: Final = 64 * 1024
_GZIP_OUTPUT_BYTES: Final = 1024 * 1024
_FIRST_GUESS_BYTES_MIN: Final = 16 * 1024
_OUT_OF_ROOM: Final = "failed to write whole buffer"
"""cramjam's message when the output did not fit; `tests/protocol/test_compression.py` pins it."""


class Compression(NamedTuple):
    """A codec, and the level for those that have one; None: a medium level."""

    codec: Codec
    level: int | None = None


def recompressed(
    batch: Buffer, header: BatchHeader, compression: Compression
) -> tuple[bytes, BatchHeader]:
    """The batch with its records compressed in this way; equal batches become equal bytes.

    Raises `DecodeError`.
    """
    records = decompress(header.codec_id, memoryview(batch)[HEADER_SIZE:])
    attributes = header.attributes & ~CODEC_MASK | compression.codec
    changed = seal_batch(
        header._replace(attributes=attributes),
        compress(compression.codec, records, compression.level),
    )
    return changed, read_header(changed)


def compress(codec: Codec, data: Buffer, level: int | None = None) -> bytes:
    """The compressed form of `data`, at the medium levels that suit batches in transit unless given."""
    if codec is Codec.NONE:
        return bytes(data)
    import cramjam  # noqa: PLC0415  not for uncompressed traffic

    match codec:
        case Codec.GZIP:
            if level is None or level < 0:
                return bytes(cramjam.gzip.compress(data))
            return bytes(cramjam.gzip.compress(data, level=level))
        case Codec.SNAPPY:
            return _compress_xerial(data)
        case Codec.LZ4:
            options = {} if level is None else {"level": level}
            compressor = cramjam.lz4.Compressor(
                content_checksum=False, block_linked=False, **options
            )
            compressor.compress(bytes(data))
            return bytes(compressor.finish())
        case Codec.ZSTD:
            return bytes(cramjam.zstd.compress(data, level=3 if level is None else level))


def decompress(
    codec_id: int,
    data: Buffer,
    bytes_max: int = DECOMPRESSED_BYTES_MAX,
    *,
    one_frame: bool = False,
) -> Buffer:
    """The decompressed `data`, at most `bytes_max` long; a view if it is large.

    With `one_frame` it has to be what every consumer reads (`compressed_frame.py`). Raises `DecodeError` if the codec is unknown or the data is damaged, `ExpansionError` if the
    decompressed data is longer.
    """
    if codec_id == Codec.NONE:
        return bytes(data)
    if codec_id > Codec.ZSTD:
        raise DecodeError(f"codec {codec_id} is unknown, the known ones are 0 to {Codec.ZSTD:d}")
    codec = Codec(codec_id)
    if codec is Codec.SNAPPY:
        return _decompress_snappy(memoryview(data), bytes_max)
    if one_frame:
        check_frame(codec, data, bytes_max)
    if codec is Codec.GZIP:
        return _decompress_gzip(data, bytes_max, one_member=one_frame)
    return _decompress_stream(codec, data, bytes_max)


def _decompress_gzip(data: Buffer, bytes_max: int, *, one_member: bool) -> Buffer:
    """Inflates a piece at a time: zlib alone says where a member ends."""
    view = memoryview(data)
    output = _Output(bytes_max)
    position = 0
    try:
        while position < len(view) or not position:
            position += _inflate(view[position:], output)
            if one_member and position < len(view):
                raise DecodeError(
                    f"{len(view) - position} bytes follow the gzip member; consumers read one"
                )
    except zlib.error as error:
        raise DecodeError(f"{len(view)} bytes of gzip do not decompress: {error}") from error
    return output.filled()


def _inflate(view: memoryview, output: _Output) -> int:
    """Appends what one member holds; returns its size in bytes."""
    member = zlib.decompressobj(wbits=_GZIP_WBITS)
    for position in range(0, len(view), _GZIP_INPUT_BYTES):
        piece: Buffer = view[position : position + _GZIP_INPUT_BYTES]
        while piece and not member.eof:
            output.add(member.decompress(piece, _GZIP_OUTPUT_BYTES))
            piece = member.unconsumed_tail
        if member.eof:
            return min(position + _GZIP_INPUT_BYTES, len(view)) - len(member.unused_data)
    raise DecodeError(f"{len(view)} bytes of gzip end inside a member")


class _Output:
    """Bytes that arrive piece by piece, at most `bytes_max`. Large ones are not copied at the end."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._room: bytearray | mmap.mmap = bytearray()
        self._size = 0

    def add(self, piece: bytes) -> None:
        """Raises `ExpansionError`."""
        end = self._size + len(piece)
        if end > self._bytes_max:
            raise ExpansionError(
                f"gzip decompresses into more than {self._bytes_max} bytes, the most allowed"
            )
        if end > len(self._room):
            larger = _room(min(max(4 * end, _FIRST_GUESS_BYTES_MIN), self._bytes_max))
            larger[: self._size] = self._room[: self._size]
            self._room = larger
        self._room[self._size : end] = piece
        self._size = end

    def filled(self) -> Buffer:
        return _filled(self._room, self._size)


def _decompress_stream(codec: Codec, data: Buffer, bytes_max: int) -> Buffer:
    """Tries ever larger output buffers, since a frame need not state its original size."""
    import cramjam  # noqa: PLC0415

    decompress_into = getattr(cramjam, codec.name.lower()).decompress_into
    room = min(max(4 * len(data), _FIRST_GUESS_BYTES_MIN), bytes_max)
    while True:
        output = _room(room)
        try:
            size = decompress_into(data, output)
        except cramjam.DecompressionError as error:
            is_too_long = _OUT_OF_ROOM in str(error)
            if not is_too_long or room >= bytes_max:
                kind = ExpansionError if is_too_long else DecodeError
                raise kind(
                    f"{len(data)} bytes of {codec.name.lower()} do not decompress "
                    f"into at most {bytes_max} bytes: {error}"
                ) from error
            room = min(4 * room, bytes_max)
        else:
            return _filled(output, size)


def _room(size: int) -> bytearray | mmap.mmap:
    """Memory for the output.

    A large buffer is not zeroed first, which would hold up every thread.
    """
    return mmap.mmap(-1, size) if size >= _LARGE_BYTES else bytearray(size)


def _filled(output: bytearray | mmap.mmap, size: int) -> Buffer:
    """The first `size` bytes: a copy if they are few, a view if they are many."""
    view = memoryview(output)[:size]
    return view.toreadonly() if size >= _LARGE_BYTES else bytes(view)


def _compress_xerial(data: Buffer) -> bytes:
    import cramjam  # noqa: PLC0415

    view = memoryview(data)
    output = bytearray(_XERIAL_HEADER)
    for position in range(0, len(view), _XERIAL_BLOCK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(view[position : position + _XERIAL_BLOCK_BYTES]))
        output += _XERIAL_BLOCK_LENGTH.pack(len(block))
        output += block
    return bytes(output)


def _decompress_snappy(data: memoryview, bytes_max: int) -> Buffer:
    if data[: len(_XERIAL_MAGIC)].tobytes() != _XERIAL_MAGIC:
        return _decompress_snappy_block(data, bytes_max)
    if len(data) < len(_XERIAL_HEADER):
        raise DecodeError(f"the snappy stream ends inside its header at byte {len(data)}")
    output, blocks = bytearray(), 0
    position = len(_XERIAL_HEADER)
    while position < len(data):
        if position + _XERIAL_BLOCK_LENGTH.size > len(data):
            raise DecodeError(f"the snappy stream ends inside a block length at byte {position}")
        (length,) = _XERIAL_BLOCK_LENGTH.unpack_from(data, position)
        position += _XERIAL_BLOCK_LENGTH.size
        if not 0 < length <= len(data) - position:
            raise DecodeError(
                f"a snappy block claims {length} bytes, {len(data) - position} are left"
            )
        blocks += 1
        left = bytes_max - len(output)
        if blocks * _XERIAL_BLOCK_BYTES_MIN > bytes_max:
            raise ExpansionError(f"a snappy stream of more than {blocks - 1} blocks")
        output += _decompress_snappy_block(data[position : position + length], left)
        position += length
    return output if len(output) >= _LARGE_BYTES else bytes(output)


def _decompress_snappy_block(block: memoryview, bytes_max: int) -> Buffer:
    import cramjam  # noqa: PLC0415

    try:
        size = cramjam.snappy.decompress_raw_len(block)
        if size > bytes_max:
            raise ExpansionError(f"a snappy block claims {size} bytes, {bytes_max} are allowed")
        output = _room(size)
        return _filled(output, cramjam.snappy.decompress_raw_into(block, output))
    except cramjam.DecompressionError as error:
        raise DecodeError(f"{len(block)} bytes are not a snappy block: {error}") from error
