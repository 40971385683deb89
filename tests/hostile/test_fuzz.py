"""Decoders against any bytes: a value or the error that they declare, and nothing else."""

from __future__ import annotations

import struct
from collections.abc import Callable

import msgpack
import pytest
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st

from echoless.broker.native.exchange import HANDLERS
from echoless.protocol.batch_validation import check_batch, check_container
from echoless.protocol.errors import DecodeError, KafkaError
from echoless.protocol.native.codec import locate_fields
from echoless.protocol.native.fields import Fields
from echoless.protocol.record_batch import Codec
from echoless.protocol.record_check import check_framing, check_records
from echoless.protocol.records import build_batch, read_records
from echoless.storage.checkpoints import OffsetCheckpoint
from echoless.storage.file_system import StorageError
from echoless.storage.leader_epochs import LeaderEpochs
from echoless.storage.producers.snapshot import SnapshotError, decode_snapshot
from tests.fakes.memory_file_system import MemoryFileSystem
from tests.protocol.sample_batches import CAPTURED_RECORDS

BYTES_MAX = 1_000_000


def mutated(whole: bytes) -> st.SearchStrategy[bytes]:
    """`whole` with up to four pieces replaced, inserted or removed."""
    piece = st.tuples(st.integers(0, len(whole)), st.integers(0, 8), st.binary(max_size=8))
    return st.lists(piece, max_size=4).map(lambda pieces: _replace(whole, pieces))


def _replace(data: bytes, pieces: list[tuple[int, int, bytes]]) -> bytes:
    for start, size, new in pieces:
        data = data[:start] + new + data[start + size :]
    return data


def check_produced(data: bytes) -> None:
    """Handles a batch as a produce request would, with the length and the CRC corrected first."""
    if len(data) > 61:
        data = data[:8] + struct.pack(">i", len(data) - 12) + data[12:]
        data = data[:17] + struct.pack(">I", crc32c(data[21:])) + data[21:]
    try:
        header = check_container(data, 9)
        check_batch(data, header, BYTES_MAX)
        check_framing(data, header, BYTES_MAX)
        check_records(data, header, BYTES_MAX)
    except KafkaError:
        return
    assert len(read_records(data)) == header.record_count


def read_native(data: bytes) -> None:
    """Handles a frame as the native port would, as each type of message in turn."""
    try:
        encoded = locate_fields(data)
    except DecodeError:
        return
    for name, (read, _) in HANDLERS.items():
        try:
            read(Fields(name, encoded))
        except KafkaError:
            continue


def read_stored(data: bytes) -> None:
    """Reads the small files of a data directory as a start would."""
    fs = MemoryFileSystem()
    fs.make_directory("/d")
    fs.write_atomic("/d/file", data)
    for read in (
        lambda: OffsetCheckpoint(fs, "/d/file").read(),
        lambda: LeaderEpochs(fs, "/d/file"),
    ):
        try:
            read()
        except StorageError:
            continue
    try:
        list(decode_snapshot(data).items())
    except SnapshotError:
        return


NATIVE = msgpack.packb(
    {
        "type": "produce",
        "correlation_id": 1,
        "topic": "t",
        "partition": 0,
        "producer_id": 1,
        "producer_epoch": 0,
        "base_sequence": 0,
        "records": [{"key": b"k", "value": b"v", "headers": {"h": b"x"}}],
    }
)
STORED = b"0\n1\ntopic 0 5\n"
CASES: dict[str, tuple[Callable[[bytes], None], list[bytes]]] = {
    "batches": (check_produced, [build_batch(CAPTURED_RECORDS, codec=one) for one in Codec]),
    "native": (read_native, [NATIVE]),
    "stored": (read_stored, [STORED, b"0\n1\n0 5\n"]),
}


def fuzz(name: str, examples: int) -> None:
    check, wholes = CASES[name]

    @given(st.one_of(*map(mutated, wholes), st.binary(max_size=200)))
    @settings(max_examples=examples)
    def any_bytes(data: bytes) -> None:
        check(data)

    any_bytes()


@pytest.mark.parametrize("name", CASES)
def test_any_bytes_give_a_value_or_the_declared_error(name: str):
    """Whatever the source of the bytes, the caller need catch only one kind of error."""
    fuzz(name, 150)


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_many_more_bytes_give_a_value_or_the_declared_error(name: str):
    """The same as above, for longer."""
    fuzz(name, 5000)
