"""How fast connections are made (KIP-612): by all clients together, and by each address.

Beyond the rate of the broker a new connection is accepted, and read later. Beyond that of its address it is refused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.config.values import INT32_MAX
from broker.quotas.rate import Rate

if TYPE_CHECKING:
    from broker.quotas.quotas import Quotas


class ConnectionRates:
    """The rates of one broker, over all its ports."""

    def __init__(self, per_second_max: int, quotas: Quotas) -> None:
        self._all = Rate(per_second_max) if per_second_max < INT32_MAX else None
        self._quotas = quotas

    @property
    def is_limited(self) -> bool:
        """Whether addresses have to be looked at."""
        return self._quotas.limits is not None

    def refusal_of(self, host: str) -> str | None:
        """Why this address may not make another connection now; one that it may make is counted."""
        if self._quotas.limits is None:
            return None
        rate, now = self._quotas.address_rate(host), self._quotas.clock()
        if rate is None or not rate.record(1, now):
            return None
        rate.record(-1, now)
        return f"it makes more than {rate.limit:g} per second (connection_creation_rate)"

    def pause_s(self) -> float:
        """How long a new connection is not read; it is counted."""
        if self._all is None:
            return 0.0
        return self._all.record(1, self._quotas.clock()) / 1000
