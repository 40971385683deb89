"""Batches that a broker refuses, with the code that it answers and, where it differs, Kafka's.

The rows follow `docs/protocol/produce.md`: container checks (`CONTAINER`), then batch checks (`BATCH`, then
the records); "Echoless" marks our own answers. `test_batch_validation` and `test_record_check` hold our code to them,
`test_refused_by_kafka` asks a real Apache Kafka.
"""

from __future__ import annotations

import gzip
import struct
from typing import NamedTuple

import lz4.frame
import pytest
import zstandard

from echoless.protocol.compression import compress
from echoless.protocol.errors import ErrorCode
from echoless.protocol.record_batch import Codec
from tests.protocol.sample_batches import captured_batches
from tests.support.raw_batches import (
    CONTROL,
    DELETE_HORIZON,
    LOG_APPEND_TIME,
    Batch,
    plain_batch,
    record,
    records,
    varint,
)

CAPTURED = captured_batches()
BYTES_MAX = 1048588
INVALID, CORRUPT, TOO_LARGE = (
    ErrorCode.INVALID_RECORD,
    ErrorCode.CORRUPT_MESSAGE,
    ErrorCode.MESSAGE_TOO_LARGE,
)
UNSUPPORTED, TIMESTAMP = ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, ErrorCode.INVALID_TIMESTAMP
UNKNOWN_CODEC = 5
NO_ANSWER = -2
"""Kafka 3.9 fails inside and leaves the client waiting."""


def good(**fields):
    """A good batch of three records with some header fields replaced, its CRC recomputed."""
    batch = plain_batch(
        [b"one", b"two", b"three"], producer_id=7, producer_epoch=1, base_sequence=0
    )
    for name, value in fields.items():
        setattr(batch, name, value)
    return batch.encode()


def begin(length, magic=2, total=17):
    """The first bytes of a batch that claims `length` bytes after its length field."""
    return (struct.pack(">qiib", 0, length, -1, magic) + bytes(100))[:total]


class Row(NamedTuple):
    """One fault. `kafka` is what Apache Kafka answers where we differ on purpose (0: it appends)."""

    what: str
    records: bytes | None
    code: ErrorCode
    produce_version: int = 9
    bytes_max: int = BYTES_MAX
    kafka: int | None = None


def rows(table):
    """Parametrizes a test over a table, each row under its own name."""
    return pytest.mark.parametrize("row", table, ids=[row.what for row in table])


def body(*fields):
    """One record out of already encoded fields, its length in front."""
    joined = b"".join(fields)
    return varint(len(joined)) + joined


def framed(what, payload, count):
    return Row(what, Batch(payload=payload, record_count=count).encode(), INVALID)


def field(what, payload, kafka=None):
    return framed(what, payload, 1)._replace(kafka=kafka)


CONTAINER = [
    Row("null records", None, INVALID, kafka=NO_ANSWER),
    Row("empty records", b"", INVALID),
    Row("fewer bytes than a length field ends at", b"\0" * 11, INVALID),
    Row("no byte of the magic yet", begin(100, total=16), INVALID),
    Row("incomplete batch", good()[:-1], INVALID),
    Row("incomplete header", good()[:60], INVALID),
    Row("length below the smallest message", begin(13, total=12), CORRUPT),
    Row("negative length", begin(-1), CORRUPT),
    Row("magic 3", good(magic=3), CORRUPT),
    Row("magic -1", good(magic=-1), CORRUPT),
    Row("magic 3, incomplete", begin(100, magic=3), CORRUPT),
    Row("magic 0", good(magic=0), INVALID),
    Row("magic 1", good(magic=1), INVALID),
    Row("complete by its length, shorter than a header", begin(48, total=60), CORRUPT),
    Row("zstd before Produce v7", CAPTURED["aiokafka-zstd"], UNSUPPORTED, produce_version=6),
    Row("second complete batch", good() + good(), INVALID),
    Row("second complete batch of magic 1", good() + good(magic=1), INVALID),
    Row("second batch with an impossible length", good() + begin(13), CORRUPT),
    Row("second batch of magic 3", good() + good(magic=3), CORRUPT),
    Row("Echoless: second batch incomplete", good() + good()[:-1], CORRUPT, kafka=0),
    Row("Echoless: one byte left over", good() + b"\0", CORRUPT, kafka=0),
    Row("bytes left over that no batch begins with", good() + b"junk" * 5, CORRUPT),
]

BATCH = [
    Row("base offset 1", good(base_offset=1), INVALID),
    Row("base offset -1", good(base_offset=-1), INVALID),
    Row("larger than max.message.bytes by one", good(), TOO_LARGE, bytes_max=len(good()) - 1),
    Row("wrong CRC", good(crc=12345), CORRUPT),
    Row("Echoless: unknown codec", good(attributes=UNKNOWN_CODEC), UNSUPPORTED, kafka=-1),
    Row("no records", good(record_count=0), INVALID),
    Row("no records, last offset delta -1", good(record_count=0, last_offset_delta=-1), INVALID),
    Row("negative number of records", good(record_count=-1), INVALID),
    Row("both negative", good(record_count=-1, last_offset_delta=-2), INVALID),
    Row("more records than offsets", good(record_count=4), INVALID),
    Row("more offsets than records", good(last_offset_delta=3), INVALID),
    Row("record count overflows int32", good(last_offset_delta=2**31 - 1), INVALID),
    Row("more records than bytes", good(record_count=100, last_offset_delta=99), INVALID),
    Row("2**31 - 1 records", good(record_count=2**31 - 1, last_offset_delta=2**31 - 2), INVALID),
    Row("control batch", good(attributes=CONTROL), INVALID),
    Row("producer id with sequence -1", good(base_sequence=-1), INVALID),
    Row("producer id with sequence -7", good(base_sequence=-7), INVALID),
    Row("producer id 0 with sequence -1", good(producer_id=0, base_sequence=-1), INVALID),
    Row(
        "log-append-time bit, no timestamp",
        good(attributes=LOG_APPEND_TIME, max_timestamp=-1),
        TIMESTAMP,
    ),
    Row("Echoless: the time of tombstones", good(attributes=DELETE_HORIZON), INVALID, kafka=0),
    Row("Echoless: log-append-time bit", good(attributes=LOG_APPEND_TIME), TIMESTAMP, kafka=0),
]

ORDER = [
    Row("zstd before a second batch", CAPTURED["aiokafka-zstd"] * 2, UNSUPPORTED, 6),
    Row("a second batch before the base offset", good(base_offset=1) + good(), INVALID),
    Row(
        "bytes left over before the base offset", good(base_offset=1) + b"x", CORRUPT, kafka=INVALID
    ),
    Row("the base offset before the size", good(base_offset=1), INVALID, bytes_max=1),
    Row("the size before the CRC", good(crc=1), TOO_LARGE, bytes_max=1),
    Row("the CRC before the codec", good(crc=1, attributes=UNKNOWN_CODEC), CORRUPT),
    Row("the CRC before the count", good(crc=1, record_count=9), CORRUPT),
    Row(
        "the codec before the count",
        good(attributes=UNKNOWN_CODEC, record_count=9),
        UNSUPPORTED,
        kafka=-1,
    ),
    Row(
        "the count before the timestamps", good(attributes=LOG_APPEND_TIME, record_count=9), INVALID
    ),
]


THREE = records([b"one", b"two", b"three"])
NULL, ZERO = varint(-1), varint(0)

FRAMING = [
    framed("fewer records than the header says", THREE, 4),
    framed("more records than the header says", THREE, 2),
    framed("bytes left over", THREE + b"\0", 3),
    framed("last record cut", THREE[:-1], 3),
    framed("no bytes", b"", 1),
    framed("negative length", varint(-1) + THREE, 4),
    framed("large negative length", varint(-(2**31)) + THREE, 4),
    framed("length beyond the end", varint(2**31 - 1) + THREE, 1),
    framed("length without an end", b"\x80" * 11, 1)._replace(kafka=-1),
    framed("two thousand million records", THREE, 2**31 - 1),
]

FIELDS = [
    field("no fields", body()),
    field("attributes only", body(b"\0")),
    field("key longer than the record", body(b"\0", ZERO, ZERO, varint(9), b"k", NULL, ZERO)),
    field("value longer than the record", body(b"\0", ZERO, ZERO, NULL, varint(9), b"v", ZERO)),
    field("huge key", body(b"\0", ZERO, ZERO, varint(2**31 - 1), b"k", NULL, ZERO)),
    field("wide key", body(b"\0", ZERO, ZERO, b"\xff" * 9 + b"\1", b"k", NULL, ZERO)),
    field("byte behind the headers", body(b"\0", ZERO, ZERO, NULL, NULL, ZERO, b"x")),
    field("negative header count", body(b"\0", ZERO, ZERO, NULL, NULL, varint(-1))),
    field("headers that are not there", body(b"\0", ZERO, ZERO, NULL, NULL, varint(3))),
    field("huge header count", body(b"\0", ZERO, ZERO, NULL, NULL, varint(2**31 - 1))),
    field("header without a key", body(b"\0", ZERO, ZERO, NULL, NULL, varint(1), NULL, NULL)),
    field("header key too long", body(b"\0", ZERO, ZERO, NULL, NULL, varint(1), varint(5), NULL)),
    field("timestamp without an end", body(b"\0", b"\xff" * 12, ZERO, NULL, NULL, ZERO)),
    field(
        "Echoless: timestamp too wide",
        body(b"\0", b"\xff" * 9 + b"\x7f", ZERO, NULL, NULL, ZERO),
        kafka=0,
    ),
    field("Echoless: offset delta 1 on the first", record(1, b"v"), kafka=0),
    field("Echoless: offset delta -1", record(-1, b"v"), kafka=0),
    field("Echoless: huge offset delta", record(2**31 - 1, b"v"), kafka=0),
    field("Echoless: key of -2 bytes", body(b"\0", ZERO, ZERO, varint(-2), NULL, ZERO), kafka=0),
    field("Echoless: value of -61", body(b"\0", ZERO, ZERO, NULL, varint(-61), ZERO), kafka=0),
    field(
        "Echoless: value of -2**31",
        body(b"\0", ZERO, ZERO, NULL, varint(-(2**31)), ZERO),
        kafka=0,
    ),
    field(
        "Echoless: header value of -2 bytes",
        body(b"\0", ZERO, ZERO, NULL, NULL, varint(1), varint(1), b"h", varint(-2)),
        kafka=0,
    ),
]

UNUSUAL_RECORDS = [
    body(b"\0", b"\xff" * 9 + b"\x01", ZERO, NULL, NULL, ZERO),
    body(b"\x7f", ZERO, ZERO, NULL, NULL, ZERO),
    body(b"\0", b"\x80\x00", b"\x80\x80\x00", NULL, NULL, b"\x80\x00"),
    body(b"\0", ZERO, ZERO, NULL, NULL, varint(1), varint(0), NULL),
]
"""Records that are right: wide timestamps, unknown attributes, long forms."""

COMPRESSED = [
    Row(
        f"not decompressible: {codec.name.lower()}",
        Batch(payload=THREE, record_count=3, attributes=codec).encode(),
        INVALID,
        kafka=-1,
    )
    for codec in Codec
    if codec is not Codec.NONE
]

_ONE, _TWO = THREE[: len(THREE) // 3], THREE[len(THREE) // 3 :]


def _lz4(data):
    return lz4.frame.compress(data, block_linked=False)


def _with_dictionary(frame):
    return frame[:4] + bytes([frame[4] | 1]) + frame[5:]


def _xerial(data):
    return compress(Codec.SNAPPY, data)


FRAMES = [
    Row(
        f"Echoless: {what}",
        Batch(payload=payload, record_count=3, attributes=codec).encode(),
        INVALID,
        kafka=kafka,
    )
    for what, codec, payload, kafka in (
        ("two lz4 frames", Codec.LZ4, _lz4(_ONE) + _lz4(_TWO), None),
        ("an empty lz4 frame first", Codec.LZ4, _lz4(b"") + _lz4(THREE), None),
        ("an empty lz4 frame last", Codec.LZ4, _lz4(THREE) + _lz4(b""), 0),
        ("a byte behind an lz4 frame", Codec.LZ4, _lz4(THREE) + b"\0", 0),
        ("an lz4 frame without an end mark", Codec.LZ4, _lz4(THREE)[:-4], -1),
        ("an lz4 frame with a dictionary", Codec.LZ4, _with_dictionary(_lz4(THREE)), -1),
        ("two gzip members", Codec.GZIP, gzip.compress(_ONE) + gzip.compress(_TWO), 0),
        ("a byte behind a gzip member", Codec.GZIP, gzip.compress(THREE) + b"\0", 0),
        ("two zstd frames", Codec.ZSTD, zstandard.compress(_ONE) + zstandard.compress(_TWO), 0),
        ("a byte behind a zstd frame", Codec.ZSTD, zstandard.compress(THREE) + b"\0", -1),
        ("two xerial streams", Codec.SNAPPY, _xerial(_ONE) + _xerial(_TWO), 0),
    )
]
"""Compressed records that some consumers cannot read: librdkafka ends its process over two gzip members."""
COMPRESSED += FRAMES
