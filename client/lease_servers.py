"""The servers asked for leases: the native ports that were given, and those that brokers name.

After each answer the cluster's native addresses are asked for, so that the next lease is found although
every broker that was given has gone meanwhile.
"""

from __future__ import annotations

from collections.abc import Sequence

from client.cluster import Address
from client.lease_request import (
    Leased,
    NoLeasesError,
    TopicPartition,
    request_brokers,
    request_leases,
)


class LeaseServers:
    """Servers of one cluster; `request` is what a `LeaseKeeper` takes."""

    def __init__(self, given: Sequence[Address], *, timeout_s: float) -> None:
        self._given = tuple(given)
        self._timeout_s = timeout_s
        self._named: tuple[Address, ...] = ()

    @property
    def addresses(self) -> tuple[Address, ...]:
        """In the order in which they are asked."""
        return tuple(dict.fromkeys((*self._named, *self._given)))

    async def request(self, partitions: Sequence[TopicPartition], now: float) -> Leased:
        """Raises `NoLeasesError`."""
        leased = await request_leases(
            self.addresses, partitions, asked_at=now, timeout_s=self._timeout_s
        )
        try:
            self._named = await request_brokers(self.addresses, timeout_s=self._timeout_s)
        except NoLeasesError:
            return leased  # the server that has just answered is known
        return leased
