"""Leased producer ids: which one a batch uses, and until when. Takes times, reads no clock; no I/O.

One `PartitionLeases` for each partition that receives records:

    wants_lease -> (ask a broker) -> grant -> for_new_batch ... wants_lease -> grant -> ...

The rules:
1. A lease counts from before it was requested, so it ends here before it ends anywhere else.
2. The next one is requested once `RENEWAL_SHARE` of the time has passed; if that fails, the current
   one is used to its end.
3. A batch that has been sent keeps its id and its sequences to the end: only under them is a copy of
   it recognised. So it may be resent after the end of its lease, for half of the time that brokers
   remember the id beyond; the other half is for copies still in transit.
4. A new id begins at sequence 0 once nothing is outstanding under the old one. Otherwise a batch that
   has to be resent would be stored after its successors.

Clocks are the caller's, in seconds; only differences count.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from echoless.client.sequenced_batch import Identity

RENEWAL_SHARE: Final = 23 / 24
"""A lease of 24 h is followed by another after 23 h."""
_RESEND_SHARE: Final = 0.5


@dataclass(slots=True, frozen=True, kw_only=True)
class Lease:
    """A producer id and its times, each no later than the next."""

    identity: Identity
    renew_at: float
    """When to start requesting the next lease."""
    ends_at: float
    """New batches must begin before this time."""
    resend_until: float
    """Batches sent under it may be resent before this time; later they could be stored twice."""

    def may_resend(self, now: float) -> bool:
        """Whether a batch already sent under this id may be resent."""
        return now < self.resend_until


def lease(identity: Identity, *, asked_at: float, lease_ms: int, retention_ms: int) -> Lease:
    """The lease that a broker granted; `asked_at` is the time before the message was sent."""
    assert 0 < lease_ms <= retention_ms, f"a lease of {lease_ms} ms, kept for {retention_ms}"
    length_s = lease_ms / 1000
    margin_s = (retention_ms - lease_ms) / 1000
    return Lease(
        identity=identity,
        renew_at=asked_at + length_s * RENEWAL_SHARE,
        ends_at=asked_at + length_s,
        resend_until=asked_at + length_s + margin_s * _RESEND_SHARE,
    )


class PartitionLeases:
    """The leases of one producer on one partition: the current one, and perhaps the next."""

    def __init__(self) -> None:
        self._current: Lease | None = None
        self._next: Lease | None = None

    def wants_lease(self, now: float) -> bool:
        """Whether a lease should be requested."""
        newest = self._next or self._current
        return newest is None or now >= newest.renew_at

    @property
    def wants_lease_at(self) -> float:
        """When `wants_lease` becomes true, if nothing happens before."""
        newest = self._next or self._current
        return float("-inf") if newest is None else newest.renew_at

    def grant(self, granted: Lease) -> None:
        """Stores a granted lease, to be used as soon as rule 4 allows."""
        self._next = granted

    def for_new_batch(self, now: float, *, has_outstanding: bool) -> Lease | None:
        """The lease for a batch that was never sent; if its identity is new, sequences begin at 0.

        `has_outstanding`: whether batches under the current lease have no outcome yet. None: not
        now, because those have to be settled first, or because no lease is valid.
        """
        if self._next is not None:
            if has_outstanding and self._current is not None:
                return None
            self._current, self._next = self._next, None
        current = self._current
        return current if current is not None and now < current.ends_at else None
