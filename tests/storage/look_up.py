"""Carries out a look-up of `storage/time_lookup.py`, as ListOffsets does."""

from __future__ import annotations

from echoless.protocol.records import first_record_since
from echoless.storage.time_lookup import Found, LookUp


def found(look_up: LookUp) -> Found:
    """The result of the look-up; each batch that it yields is opened at once."""
    try:
        wanted = next(look_up)
        while True:
            wanted = look_up.send(first_record_since(*wanted))
    except StopIteration as end:
        answer: Found = end.value
        return answer
