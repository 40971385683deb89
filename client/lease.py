"""Leased producer ids: which one a batch goes under, and until when. Times, no clock; no I/O.

One `PartitionLeases` for each partition that records go to:

    wants_lease -> (ask a broker) -> grant -> for_new_batch ... wants_lease -> grant -> ...

The rules:
1. A lease counts from before it was asked for, so it ends here before it ends anywhere else.
2. The next one is asked for when `RENEWAL_SHARE` of the time is over; if that fails, the present one
   goes on to its end.
3. A batch that has been sent keeps its id and its sequences for as long as it lives: only under them
   is a copy of it recognised. So it goes again behind the end of its lease, for half of the time that
   brokers remember the id beyond; the other half is for what is still on its way.
4. A new id begins at sequence 0 once nothing is outstanding under the old one. Otherwise a batch that
   has to be sent again would be stored behind its successors.

Clocks are the caller's, in seconds; only differences count.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from client.sequenced_batch import Identity

RENEWAL_SHARE: Final = 23 / 24
"""A lease of 24 h is followed by another after 23 h."""
_RESEND_SHARE: Final = 0.5


@dataclass(slots=True, frozen=True, kw_only=True)
class Lease:
    """A producer id and its times, each no later than the next."""

    identity: Identity
    renew_at: float
    """From here on the next lease is asked for."""
    ends_at: float
    """New batches begin before."""
    resend_until: float
    """What was sent under it goes again before; later it could be stored twice."""

    def may_resend(self, now: float) -> bool:
        """Whether a batch that was sent under this id before can be sent again."""
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
    """The leases of one producer on one partition: one in use, perhaps the next one in store."""

    def __init__(self) -> None:
        self._current: Lease | None = None
        self._next: Lease | None = None

    def wants_lease(self, now: float) -> bool:
        """Whether a lease should be asked for."""
        newest = self._next or self._current
        return newest is None or now >= newest.renew_at

    @property
    def wants_lease_at(self) -> float:
        """When `wants_lease` becomes true, if nothing happens before."""
        newest = self._next or self._current
        return float("-inf") if newest is None else newest.renew_at

    def grant(self, granted: Lease) -> None:
        """A lease has arrived; it is used when rule 4 allows."""
        self._next = granted

    def for_new_batch(self, now: float, *, has_outstanding: bool) -> Lease | None:
        """The lease for a batch that was never sent; its identity differs from the last one's: begin at 0.

        `has_outstanding`: whether batches under the lease in use have no outcome yet. None: not now,
        for these have to be settled first, or there is no lease that lives.
        """
        if self._next is not None:
            if has_outstanding and self._current is not None:
                return None
            self._current, self._next = self._next, None
        current = self._current
        return current if current is not None and now < current.ends_at else None
