"""Leased producer ids: which ids they are, and how long they are remembered.

A lease gives the number n, taken from the same blocks as all producer ids, as the id 2**52 + n. So
the id itself says that it was leased: in every batch, log and snapshot, on every replica, without
any broker being notified. Ids stay below 2**53, the largest integer that JavaScript counts exactly.
Blocks never reach into this range.

Pure. The reasons are in `docs/decisions/leases.md`.
"""

from __future__ import annotations

from typing import Final

LEASED_ID_MIN: Final = 2**52
LEASED_ID_END: Final = 2**53
"""One above the largest leased id that is not bound to a principal (`protocol/bound_ids.py`)."""

LEASE_MARGIN_MS: Final = 3_600_000
"""Time after the end of a lease in which its batches may be resent; every replica knows them.

Far longer than a client keeps trying (minutes), and than clocks are set forward in one step.
"""


def is_leased(producer_id: int) -> bool:
    """Whether the id came from `lease_pid`."""
    return bool(producer_id & LEASED_ID_MIN)


def leased_id(number: int) -> int:
    """The leased id for a number, or a bound id, that no other producer has."""
    assert number >= 0, f"{number} cannot be leased"
    assert not number & LEASED_ID_MIN, f"{number} cannot be leased"
    return LEASED_ID_MIN | number


def lease_retention_ms(lease_ms: int) -> int:
    """Least time for which every replica remembers a leased id after its last append.

    An id is used only after it was issued, so this reaches `LEASE_MARGIN_MS` past the end of the
    lease, whenever the append was, and depends on the replica's own clock only.
    """
    return lease_ms + LEASE_MARGIN_MS
