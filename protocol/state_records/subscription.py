"""The topics in the metadata of a member whose protocol type is `consumer`."""

from __future__ import annotations

from typing import Final

from echoless.protocol.errors import DecodeError
from echoless.protocol.state_records.fields import FieldReader

_TOPICS_MAX: Final = 10_000


def subscribed_topics(metadata: bytes) -> tuple[str, ...] | None:
    """The topics of a subscription: version i16 and an array of names, to which all versions only add.

    None if the bytes are no subscription, or one of more topics than are read at once.
    """
    reader = FieldReader(metadata)
    try:
        if reader.int16() < 0:
            return None
        return reader.array(FieldReader.string, most=_TOPICS_MAX)
    except DecodeError:
        return None
