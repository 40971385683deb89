"""Types of the markers that end transactions, as a column: the one field that is in a record, not in a header."""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa

from echoless.pipeline.batches.batch_columns import Headers, Integers
from echoless.protocol.control_records import read_marker
from echoless.protocol.errors import DecodeError
from echoless.protocol.record_batch import CONTROL_BIT, LOG_OVERHEAD, Buffer

_NO_MARKER: Final = -1


def marker_types(buffer: Buffer, positions: Integers, headers: Headers) -> pa.Array | None:
    """Returns 0 for ABORT, 1 for COMMIT and null for all other batches; None if no batch is a control batch."""
    controls = np.flatnonzero((headers["attributes"] & CONTROL_BIT) != 0)
    if not len(controls):
        return None
    view = memoryview(buffer)
    types = np.full(len(positions), _NO_MARKER, np.int32)
    sizes = headers["batch_length"][controls].astype(np.int64) + LOG_OVERHEAD
    for index, start, size in zip(
        controls.tolist(), positions[controls].tolist(), sizes.tolist(), strict=True
    ):
        types[index] = _type_of(view[start : start + size])
    return pa.array(types, mask=types == _NO_MARKER)


def _type_of(batch: memoryview) -> int:
    try:
        marker = read_marker(batch)
    except DecodeError:
        return _NO_MARKER  # a checksum that does not match, or another's control record
    return _NO_MARKER if marker is None else marker.type
