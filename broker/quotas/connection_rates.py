"""The rates at which connections are made (KIP-612): by all clients together, on each listener, and by each address.

Beyond the rate of the broker or of its listener a new connection is accepted, and waits at the entrance. Beyond that of its address it is
refused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from echoless.broker.config.listener_names import NATIVE
from echoless.broker.config.listener_overrides import RATE
from echoless.broker.config.values import INT32_MAX
from echoless.broker.quotas.entrance import ConnectionRateQuota

if TYPE_CHECKING:
    from echoless.broker.config.loading import Config
    from echoless.broker.quotas.quotas import Quotas


class ConnectionRates:
    """The rates of one broker, over all its ports."""

    def __init__(self, config: Config, quotas: Quotas) -> None:
        self._config = config
        self._quotas = quotas
        self._of_broker = self._bounded(config.connection_creation_rate_max)
        self._own: dict[str, ConnectionRateQuota | None] = {}
        """The entrances of listeners that have a rate of their own, by name."""

    async def settings_changed(self, _names: frozenset[str]) -> None:
        """Takes over the rate of the broker; connections that wait do so for as long as the new one says."""
        per_second_max = self._config.connection_creation_rate_max
        if self._of_broker is None:
            self._of_broker = self._bounded(per_second_max)
        else:
            self._of_broker.set_rate(per_second_max)

    def entrance(self, listener: str) -> ConnectionRateQuota | None:
        """The way into a listener now; None if nothing bounds how fast its connections are made.

        Connections between brokers do not wait for those of clients, only for the rate of their own listener.
        """
        leads_to = None if listener == NATIVE else self._of_broker
        if listener not in self._own:
            rate = self._config.listener_overrides.get(listener, {}).get(RATE, INT32_MAX)
            self._own[listener] = self._bounded(rate)
        own = self._own[listener]
        if own is None:
            return leads_to
        own.leads_to = leads_to
        return own

    def _bounded(self, per_second_max: int) -> ConnectionRateQuota | None:
        is_bounded = per_second_max < INT32_MAX
        return ConnectionRateQuota(per_second_max, self._quotas) if is_bounded else None

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
