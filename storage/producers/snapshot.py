"""A partition's producer state as bytes, from which a restart or a new replica begins.

Three kinds of msgpack objects, one after the other (`docs/formats/producer-snapshot.md`):
    header   map {"version", "offset", "window", "producers"}
    blocks   bin, each whole entries: producer_id i64 little-endian, then `record.py`'s
             bytes; oldest append first. Entries are copied, not encoded: a million take a second.
             In version 2 blocks with rows of `transactions.py` come before them.
    trailer  uint 32: CRC-32C of all bytes before it

Version 1 is written where the partition has known no transaction, so that brokers that know no transactions read it.

`offset` is exclusive: the state after every batch below it. The whole window is kept (Kafka keeps one
batch, and then mistakes a retry of the second newest for a gap).

Damage anywhere is a `SnapshotError`, and the numbers in a snapshot never determine how much memory is
allocated: blocks are views into the given bytes, and records go into slots whose size depends on the
partition's own window. The bytes come from disk or, in a cluster, from a peer.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Any, Final, NamedTuple

from echoless.protocol.checksum import crc32c
from echoless.protocol.dedup import ProducerEntry
from echoless.protocol.record_batch import Buffer
from echoless.storage.file_system import FileSystem
from echoless.storage.newer_format import is_newer, newer_format
from echoless.storage.producers.record import (
    BATCH,
    COUNT_MASK,
    RECORD_HEAD,
    WINDOW_MAX,
    decode_record,
    read_append_ms,
    record_size,
    write_append_ms,
)
from echoless.storage.producers.state import NONE_LOST, FrozenStates, ProducerStates
from echoless.storage.producers.transactions import NO_TRANSACTIONS, FrozenTransactions, read_rows

VERSION: Final = 2
_WITHOUT_TRANSACTIONS: Final = 1
_BLOCK_BYTES: Final = 1 << 16
"""A block ends once it has this size; its last entry may exceed it."""
_BLOCK_BYTES_MAX: Final = 1 << 20
_TRAILER: Final = struct.Struct(">BI")
_UINT_32: Final = 0xCE
"""msgpack's type byte for an unsigned 32-bit integer."""
_PRODUCER_ID: Final = struct.Struct("<q")
_ENTRY_HEAD: Final = struct.Struct(_PRODUCER_ID.format + RECORD_HEAD.format.lstrip("<"))
assert _TRAILER.size == 5
assert _ENTRY_HEAD.size == 24
assert _BLOCK_BYTES + _PRODUCER_ID.size + record_size(WINDOW_MAX) <= _BLOCK_BYTES_MAX


class SnapshotError(Exception):
    """The snapshot is damaged or of another version; the message says where and how."""


class NewerSnapshotError(SnapshotError):
    """The snapshot is of a newer version, and as good as ever."""


class Snapshot(NamedTuple):
    """A decoded snapshot, checked as a whole."""

    offset: int
    """The state is that of all batches below this offset."""
    window: int
    """Batches kept per producer by the partition that wrote it."""
    producers: int
    """The number of producers."""
    blocks: tuple[memoryview, ...]
    forgotten: int = 0
    """The number of producers that are forgotten, and of which one batch is kept: the first ones."""
    lost_from: int = NONE_LOST
    """The lowest number of a producer id that was known once and is not in here (`issue_number`)."""
    transactions: FrozenTransactions = NO_TRANSACTIONS

    def records(self) -> Iterator[tuple[int, memoryview]]:
        """Yields every producer id with its packed record: the forgotten ones, then by last append, oldest first."""
        for block in self.blocks:
            for producer_id, start, end in _walk(block, self.window):
                yield producer_id, block[start:end]

    def items(self) -> Iterator[tuple[int, ProducerEntry]]:
        """Yields every producer id with its entry, in the same order."""
        for producer_id, record in self.records():
            yield producer_id, decode_record(record)

    def load_into(self, producers: ProducerStates) -> None:
        """Replaces all of `producers`; its own window and bound apply, expiry is up to the caller."""
        producers.load(
            self.records(),
            self.producers,
            self.window,
            forgotten=self.forgotten,
            lost_from=self.lost_from,
            transactions=self.transactions,
        )


def write_snapshot(fs: FileSystem, path: str, offset: int, producers: ProducerStates) -> None:
    """Writes the state as of `offset`, atomically and durably. Raises `StorageError`."""
    fs.write_atomic(path, encode_snapshot(offset, producers))


def read_snapshot(fs: FileSystem, path: str) -> Snapshot:
    """Reads and checks a snapshot file. Raises `SnapshotError`; `StorageError` if it is unreadable."""
    try:
        return decode_snapshot(fs.read_bytes(path))
    except SnapshotError as error:
        raise type(error)(f"{path}: {error}") from error


def encode_snapshot(offset: int, producers: ProducerStates | FrozenStates) -> bytes:
    """Encodes the state as of `offset`."""
    import msgpack  # noqa: PLC0415 - a start on a new directory reads and writes no snapshot

    header = {
        "version": _WITHOUT_TRANSACTIONS,
        "offset": offset,
        "window": producers.window,
        "producers": producers.forgotten_count + len(producers),
    }
    if producers.forgotten_count:
        header["forgotten"] = producers.forgotten_count
    if producers.lost_from != NONE_LOST:
        header["lost_from"] = producers.lost_from
    blocks: list[bytes] = []
    if producers.transactions is not NO_TRANSACTIONS:
        transactions = producers.transactions
        of_producers = list(_joined(transactions.producer_rows()))
        of_ended = list(_joined(transactions.ended_rows()))
        header["version"] = VERSION
        header["transaction_blocks"] = len(of_producers)
        header["ended_blocks"] = len(of_ended)
        blocks = of_producers + of_ended
    parts = [msgpack.packb(header)]
    parts.extend(msgpack.packb(block) for block in chain(blocks, _blocks(producers)))
    crc = 0
    for part in parts:
        crc = crc32c(part, crc)
    parts.append(_TRAILER.pack(_UINT_32, crc))
    return b"".join(parts)


def decode_snapshot(data: Buffer) -> Snapshot:
    """Checks every byte. The result refers to `data`. Raises `SnapshotError`."""
    import msgpack  # noqa: PLC0415 - see above

    _check_trailer(data)
    unpacker = msgpack.Unpacker(
        _Reader(memoryview(data)),
        max_buffer_size=2 * _BLOCK_BYTES_MAX,
        max_bin_len=_BLOCK_BYTES_MAX,
        max_str_len=64,
        max_map_len=16,
        max_array_len=0,
        max_ext_len=0,
    )
    try:
        snapshot = _from_objects(data, unpacker)
    except (ValueError, msgpack.UnpackException) as error:
        raise SnapshotError(f"not msgpack of the expected shape: {error!r}") from error
    found = sum(1 for block in snapshot.blocks for _ in _walk(block, snapshot.window))
    if found != snapshot.producers:
        raise SnapshotError(f"the header promises {snapshot.producers} producers, found {found}")
    return snapshot


def shift_times(data: Buffer, by_ms: int) -> bytearray:
    """Returns the snapshot with every time of a last append moved by `by_ms`, to another clock.

    Raises `SnapshotError`.
    """
    shifted = bytearray(data)
    for _, record in decode_snapshot(shifted).records():
        write_append_ms(record, read_append_ms(record) + by_ms)
    end = len(shifted) - _TRAILER.size
    _TRAILER.pack_into(shifted, end, _UINT_32, crc32c(memoryview(shifted)[:end]))
    return shifted


class _Reader:
    """Feeds a buffer to msgpack piece by piece; `io.BytesIO` would copy all of a bytearray."""

    def __init__(self, data: memoryview) -> None:
        self._data = data
        self._position = 0

    def read(self, size: int) -> bytes:
        piece = bytes(self._data[self._position : self._position + size])
        self._position += len(piece)
        return piece


def _blocks(producers: ProducerStates | FrozenStates) -> Iterator[bytes]:
    records = chain(producers.forgotten_records(), producers.records())
    return _joined(b"".join((_PRODUCER_ID.pack(one), record)) for one, record in records)


def _joined(rows: Iterable[Buffer]) -> Iterator[bytes]:
    """Yields blocks of whole rows."""
    block = bytearray()
    for row in rows:
        block += row
        if len(block) >= _BLOCK_BYTES:
            yield bytes(block)
            block.clear()
    if block:
        yield bytes(block)


def _check_trailer(data: Buffer) -> None:
    if len(data) <= _TRAILER.size:
        raise SnapshotError(f"{len(data)} bytes are too few for a snapshot")
    body = memoryview(data)[: -_TRAILER.size]
    kind, expected = _TRAILER.unpack_from(data, len(body))
    if kind != _UINT_32:
        raise SnapshotError("it does not end in a checksum, so it is cut off or damaged")
    found = crc32c(body)
    if found != expected:
        raise SnapshotError(
            f"checksum {found:#010x} of the bytes is not the stored {expected:#010x}"
        )


def _from_objects(data: Buffer, unpacker: Iterable[Any]) -> Snapshot:
    objects = iter(unpacker)
    header = next(objects, None)
    if not isinstance(header, dict):
        raise SnapshotError("it does not begin with a header")
    if is_newer(header.get("version"), VERSION):
        raise NewerSnapshotError(newer_format(header["version"], VERSION))
    if header.get("version") not in {_WITHOUT_TRANSACTIONS, VERSION}:
        raise SnapshotError(f"version {header.get('version')!r} is not {VERSION}")
    blocks = list(_views(data, unpacker))
    of_producers = _count_blocks(header, "transaction_blocks", blocks)
    of_ended = of_producers + _count_blocks(header, "ended_blocks", blocks[of_producers:])
    producers = _bounded(header, "producers", 0, 2**31 - 1)
    return Snapshot(
        offset=_bounded(header, "offset", 0, 2**63 - 1),
        window=_bounded(header, "window", 1, WINDOW_MAX),
        producers=producers,
        forgotten=_bounded({"forgotten": 0, **header}, "forgotten", 0, producers),
        blocks=tuple(blocks[of_ended:]),
        lost_from=_bounded({"lost_from": NONE_LOST, **header}, "lost_from", 0, NONE_LOST),
        transactions=_transactions(blocks[:of_producers], blocks[of_producers:of_ended]),
    )


def _count_blocks(header: dict[str, Any], name: str, blocks: Sequence[Buffer]) -> int:
    return _bounded({name: 0, **header}, name, 0, len(blocks))


def _transactions(producers: Sequence[Buffer], ended: Sequence[Buffer]) -> FrozenTransactions:
    if not producers and not ended:
        return NO_TRANSACTIONS
    try:
        return read_rows(producers, ended)
    except (ValueError, struct.error) as error:
        raise SnapshotError(f"the rows of transactions are damaged: {error}") from error


def _bounded(header: dict[str, Any], name: str, least: int, most: int) -> int:
    value = header.get(name)
    if type(value) is not int or not least <= value <= most:
        raise SnapshotError(f"{name} is {value!r}, not a number from {least} to {most}")
    return value


def _views(data: Buffer, unpacker: Any) -> Iterator[memoryview]:
    """Yields each block as a view into `data`, so that decoding copies nothing."""
    whole = memoryview(data)
    for block in unpacker:
        end = unpacker.tell()
        if end == len(data):
            return  # the trailer, checked before
        if not isinstance(block, bytes):
            raise SnapshotError(f"a {type(block).__name__} is in the place of a block of entries")
        yield whole[end - len(block) : end]
    raise SnapshotError("the blocks run into the checksum")


def _walk(block: memoryview, window: int) -> Iterator[tuple[int, int, int]]:
    """Yields producer id, start and end of the record for every entry of a block, after checking it."""
    position = 0
    size = len(block)
    while position < size:
        if size - position < _ENTRY_HEAD.size:
            raise SnapshotError(f"{size - position} bytes are left over after a block's entries")
        producer_id, _, _, _, marked_count = _ENTRY_HEAD.unpack_from(block, position)
        count = marked_count & COUNT_MASK
        end = position + _ENTRY_HEAD.size + count * BATCH.size
        if producer_id < 0 or count > window or end > size:
            raise SnapshotError(
                f"the entry of producer id {producer_id} claims {count} batches, "
                f"the window is {window} and the block ends at {size}, not {end}"
            )
        yield producer_id, position + _PRODUCER_ID.size, end
        position = end
