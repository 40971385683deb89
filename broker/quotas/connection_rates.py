"""How fast connections are made (KIP-612): by all clients together, and by each address.

Beyond the rate of the broker a new connection is accepted, and waits at the entrance. Beyond that of its address it is
refused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.config.values import INT32_MAX
from broker.quotas.entrance import Entrance

if TYPE_CHECKING:
    from broker.quotas.quotas import Quotas


class ConnectionRates:
    """The rates of one broker, over all its ports."""

    def __init__(self, per_second_max: int, quotas: Quotas) -> None:
        is_bounded = per_second_max < INT32_MAX
        self.entrance = Entrance(per_second_max, quotas) if is_bounded else None
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
