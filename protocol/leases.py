"""Leased producer ids: which they are, and how long they are remembered.

A lease gives the number n, taken from the same blocks as all producer ids, as the id 2**52 + n. So
the id itself says that it was leased: in every batch, every log, every snapshot, on every replica,
and no broker has to be told. Ids stay below 2**53, where also JavaScript counts exactly. Blocks
leave this range out.

Pure. The reasons are in `docs/decisions/leases.md`.
"""

from __future__ import annotations

from typing import Final

LEASED_ID_MIN: Final = 2**52
LEASED_ID_END: Final = 2**53
"""One above the largest leased id."""

LEASE_MARGIN_MS: Final = 3_600_000
"""For so long after the end of a lease its batches may still be sent again; every replica knows them.

Far longer than a client goes on trying (minutes), and than clocks are set forward in one step.
"""


def is_leased(producer_id: int) -> bool:
    """Whether the id came from `lease_pid`."""
    return LEASED_ID_MIN <= producer_id < LEASED_ID_END


def leased_id(number: int) -> int:
    """The leased id of a number that no other producer has."""
    assert 0 <= number < LEASED_ID_MIN, f"{number} cannot be leased"
    return LEASED_ID_MIN + number


def lease_retention_ms(lease_ms: int) -> int:
    """How long after its last append a replica knows a leased id at least.

    An id is used only after its issue, so this reaches `LEASE_MARGIN_MS` beyond the end of the
    lease, whenever the append was, and by no clock but the replica's own.
    """
    return lease_ms + LEASE_MARGIN_MS
