"""The types of markers, for many batches at once: as the reader of one says, whatever is changed in them."""

from __future__ import annotations

import numpy as np

from echoless.pipeline.batches.batch_columns import decode_headers
from echoless.pipeline.batches.markers import marker_types
from echoless.protocol.control_records import EndMarker, MarkerType, build_marker, read_marker
from echoless.protocol.errors import DecodeError


def one_by_one(batch: bytes) -> int | None:
    try:
        marker = read_marker(batch)
    except DecodeError:
        return None
    return None if marker is None else int(marker.type)


def test_every_flipped_bit_of_a_marker_is_read_as_one_by_one():
    """Markers of both kinds and sizes; what is in the record, and the count, decides alike both ways."""
    batches = []
    for marker_type in MarkerType:
        for number in (-1, 5):
            batch = build_marker(EndMarker(marker_type, 3, number), 7, 2, 1_700_000_000_000)
            flipped = [batch]
            for position in range(57, len(batch)):
                for bit in range(8):
                    changed = bytearray(batch)
                    changed[position] ^= 1 << bit
                    flipped.append(bytes(changed))
            batches += flipped
    buffer = b"".join(batches)
    positions = np.cumsum([0, *map(len, batches)])[:-1].astype(np.int64)
    found = marker_types(buffer, positions, decode_headers(buffer, positions))
    assert found is not None
    assert found.to_pylist() == [one_by_one(batch) for batch in batches]
