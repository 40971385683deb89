"""The servers to ask for leases: the native ports given at start, and those that brokers name.

After each answer the cluster's native addresses are requested, so that the next lease can be found
although every broker given at start has gone.
"""

from __future__ import annotations

from collections.abc import Sequence

from echoless.client.cluster import BrokerAddress
from echoless.client.lease_request import (
    Leased,
    NoLeasesError,
    request_brokers,
    request_leases,
)
from echoless.client.security import NO_SECURITY, Security
from echoless.client.topic_partition import TopicPartition


class LeaseServers:
    """Servers of one cluster; `request` is what a `LeaseKeeper` takes."""

    def __init__(
        self, given: Sequence[BrokerAddress], *, timeout_s: float, security: Security = NO_SECURITY
    ) -> None:
        self._given = tuple(given)
        self._security = security
        self._timeout_s = timeout_s
        self._named: tuple[BrokerAddress, ...] = ()

    @property
    def addresses(self) -> tuple[BrokerAddress, ...]:
        """The addresses in the order in which they are tried."""
        return tuple(dict.fromkeys((*self._named, *self._given)))

    async def request(self, partitions: Sequence[TopicPartition], now: float) -> Leased:
        """Raises `NoLeasesError`."""
        leased = await request_leases(
            self.addresses,
            partitions,
            asked_at=now,
            timeout_s=self._timeout_s,
            security=self._security,
        )
        try:
            self._named = await request_brokers(
                self.addresses, timeout_s=self._timeout_s, security=self._security
            )
        except NoLeasesError:
            return leased  # the server that has just answered is known
        return leased
