"""The walk by numpy finds what a plain walk finds, batch by batch, whatever the bytes are."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from echoless.pipeline.batches.batch_columns import decode_headers
from echoless.pipeline.batches.batch_walk import walk
from echoless.protocol.record_batch import (
    BATCH_LENGTH_MIN,
    HEADER_SIZE,
    MAGIC,
    compute_crc,
    read_header,
)
from echoless.protocol.records import Record, build_batch

Found = tuple[list[int], list[bool], int, str | None]


def plain_walk(data: bytes, *, is_last: bool) -> Found:
    """The rules, one batch at a time: positions, whether each CRC is right, the end, the damage."""
    positions: list[int] = []
    crc_oks: list[bool] = []
    at, total = 0, len(data)
    while total - at >= HEADER_SIZE:
        header = read_header(data, at)
        if header.magic != MAGIC:
            return positions, crc_oks, at, f"magic {header.magic}, not {MAGIC}"
        if header.batch_length < BATCH_LENGTH_MIN:
            length = header.batch_length
            reason = f"batch length {length}, at least {BATCH_LENGTH_MIN} are needed"
            return positions, crc_oks, at, reason
        end = at + header.size
        if end > total:
            break
        crc_ok = compute_crc(data[at:end]) == header.crc
        if not crc_ok and not _begins_batch(data[end:]) and not (is_last and end == total):
            is_known = is_last or total - end >= HEADER_SIZE
            reason = "the CRC does not match, and no batch follows" if is_known else None
            return positions, crc_oks, at, reason
        positions.append(at)
        crc_oks.append(crc_ok)
        at = end
    return positions, crc_oks, at, None


def _begins_batch(data: bytes) -> bool:
    if len(data) < HEADER_SIZE:
        return False
    header = read_header(data)
    return header.magic == MAGIC and header.batch_length >= BATCH_LENGTH_MIN


def batch_of(value_bytes: int) -> bytes:
    return build_batch([Record(0, 1000, None, bytes([MAGIC]) * value_bytes)])


BATCH = batch_of(3)


@given(
    sizes=st.lists(st.integers(0, 40), max_size=6),
    flips=st.lists(st.tuples(st.integers(0, 700), st.integers(0, 7)), max_size=3),
    cut=st.integers(0, 120),
    is_last=st.booleans(),
)
@example(sizes=[3, 3], flips=[(BATCH.index(3), 0)], cut=0, is_last=True)
@example(sizes=[3], flips=[(len(BATCH) - 1, 0)], cut=0, is_last=True)
@example(sizes=[3], flips=[(len(BATCH) - 1, 0)], cut=0, is_last=False)
@example(sizes=[3, 3], flips=[(len(BATCH) - 1, 0)], cut=1, is_last=True)
@example(sizes=[3, 3], flips=[(len(BATCH) - 1, 0)], cut=len(BATCH) - 60, is_last=False)
@example(sizes=[3, 3], flips=[(len(BATCH) - 1, 0), (len(BATCH) + 16, 1)], cut=0, is_last=False)
@example(
    sizes=[3, 3, 3], flips=[(2 * len(BATCH) - 1, 0), (2 * len(BATCH) + 11, 7)], cut=0, is_last=True
)
def test_it_finds_what_a_plain_walk_finds(
    sizes: list[int], flips: list[tuple[int, int]], cut: int, is_last: bool
) -> None:
    """Bits flipped anywhere, and the end cut off: the same batches, checksums, end and damage."""
    data = bytearray(b"".join(map(batch_of, sizes)))
    for at, bit in flips:
        if at < len(data):
            data[at] ^= 1 << bit
    buffer = bytes(data[: max(len(data) - cut, 0)])
    found = walk(buffer, is_last=is_last)
    seen = found.positions.tolist(), found.crc_oks.tolist(), found.end, found.damage
    assert seen == plain_walk(buffer, is_last=is_last)
    assert [tuple(header) for header in found.headers.tolist()] == [
        tuple(read_header(buffer, at)) for at in found.positions.tolist()
    ]


def test_headers_are_read_wherever_a_buffer_allows() -> None:
    """The last header of a buffer may end with it."""
    import numpy as np

    data = b"x" + BATCH[:HEADER_SIZE]
    (header,) = decode_headers(data, np.array([1])).tolist()
    assert tuple(header) == tuple(read_header(BATCH))
    assert not len(decode_headers(b"", np.array([], np.int64)))
