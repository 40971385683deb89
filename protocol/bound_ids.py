"""Bound producer ids: ids that say which principal obtained them, and that others are refused.

With `producer_id_binding=principal` an id has the number n of the usual blocks in its lower 40 bits, and the tag of its
principal around bit 52, which says that an id is leased (`protocol/leases.py`). So every log, snapshot and
replica knows an id's owner without asking. Tag 0 is that of ids that are not bound, and the highest one that of ids of transactional ids, which
belong to these and not to a principal.

Pure. The reasons are in `docs/decisions/bound-producer-ids.md`.
"""

from __future__ import annotations

from typing import Final

NUMBER_BITS: Final = 40
NUMBER_END: Final = 1 << NUMBER_BITS
"""One above the largest number that can be bound."""
_LOW_BITS: Final = 12
_LOW_MASK: Final = (1 << _LOW_BITS) - 1
_HIGH_SHIFT: Final = 53
TAG_BITS: Final = 22
UNBOUND: Final = 0
TRANSACTIONAL: Final = (1 << TAG_BITS) - 1
"""The tag of all producer ids that transactional ids have."""


def tag_of(producer_id: int) -> int:
    """The tag in the id; `UNBOUND` if it has none."""
    low = producer_id >> NUMBER_BITS & _LOW_MASK
    return low | producer_id >> _HIGH_SHIFT << _LOW_BITS


def issue_number(producer_id: int) -> int:
    """The number that the id was made of: a larger one was issued later, or by another broker."""
    return producer_id if producer_id < NUMBER_END else producer_id & NUMBER_END - 1


def tagged(producer_id: int, tag: int) -> int:
    """The id with this tag; it has none yet, and its number is below `NUMBER_END`."""
    assert tag_of(producer_id) == UNBOUND
    assert 0 <= tag < 1 << TAG_BITS
    return producer_id | (tag & _LOW_MASK) << NUMBER_BITS | tag >> _LOW_BITS << _HIGH_SHIFT


def principal_tag(secret: bytes, principal: str) -> int:
    """The tag of a principal, never `UNBOUND` or `TRANSACTIONAL`. Two principals have the same one in 4 million."""
    import hashlib  # noqa: PLC0415 - they load OpenSSL, and most brokers bind no ids
    import hmac  # noqa: PLC0415

    digest = hmac.digest(secret, principal.encode(), hashlib.sha256)
    tag = int.from_bytes(digest[:8]) % TRANSACTIONAL + 1
    return tag if tag != TRANSACTIONAL else 1
