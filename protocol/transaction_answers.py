"""The answers of AddPartitionsToTxn (versions 0-3) and EndTxn, packed by hand: every transaction has them. Pure."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Final

from echoless.protocol.headers import NO_TAGS
from echoless.protocol.state_records.fields import pack_size, pack_string

_FLEXIBLE_FROM: Final = 3
"""The first version with compact fields, of both APIs."""
_IDENTITY_FROM: Final = 5
"""The first version of EndTxn's answer with producer id and epoch."""
_NOT_THROTTLED: Final = struct.pack(">i", 0)
_ROW: Final = struct.Struct(">ih")
_FLEXIBLE_ROW: Final = struct.Struct(">ihx")
_END: Final = struct.Struct(">ih")
_FLEXIBLE_END: Final = struct.Struct(">ihx")
_END_WITH_IDENTITY: Final = struct.Struct(">ihqhx")


def encode_end_txn_response(
    version: int, error_code: int, producer_id: int, producer_epoch: int
) -> bytes:
    """The body of EndTxn's response; the identity to go on with is in version 5 alone."""
    if version >= _IDENTITY_FROM:
        return _END_WITH_IDENTITY.pack(0, error_code, producer_id, producer_epoch)
    return (_FLEXIBLE_END if version >= _FLEXIBLE_FROM else _END).pack(0, error_code)


def encode_add_partitions_response(
    version: int, topics: Iterable[tuple[str, Iterable[int]]], error_code: int
) -> bytes:
    """The body of AddPartitionsToTxn's response to a client, with one code for all partitions: topics and their indexes."""
    flexible = version >= _FLEXIBLE_FROM
    pack_row = _FLEXIBLE_ROW.pack if flexible else _ROW.pack
    rows = [(name, [pack_row(index, error_code) for index in indexes]) for name, indexes in topics]
    parts = [_NOT_THROTTLED, pack_size(len(rows), flexible=flexible)]
    for name, packed in rows:
        parts += pack_string(name, flexible=flexible), pack_size(len(packed), flexible=flexible)
        parts += packed
        if flexible:
            parts.append(NO_TAGS)
    if flexible:
        parts.append(NO_TAGS)
    return b"".join(parts)
