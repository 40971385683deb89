"""This broker's listeners, and the addresses that their clients are given: as configured, or as set while it runs.

A change is registered first (`ClusterMembership.advertise`), so that other brokers give it to their clients as well, and
is in force when the call returns. It lives as long as this process: the next start is as configured.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import NamedTuple

from echoless.broker.cluster.membership import ClusterMembership
from echoless.broker.config.advertised import Advertised, ClientAddress, Networks
from echoless.broker.config.values import Address
from echoless.broker.metadata.registration import Endpoint
from echoless.broker.tree.node_tree import CoordinationError


class AdvertisedChange(NamedTuple):
    """Addresses that are set in place of the configured ones; None: as configured."""

    address: ClientAddress | None = None
    networks: Networks | None = None


class OwnListeners:
    """The listeners of one broker that has joined its cluster, by name."""

    def __init__(
        self,
        configured: Mapping[str, Advertised],
        membership: ClusterMembership,
        security_protocol: Callable[[str], str],
    ) -> None:
        self.configured = configured
        """The addresses that clients of each listener are given after a start."""
        self.advertised = dict(configured)
        """The addresses that they are given now."""
        self._membership = membership
        self._security_protocol = security_protocol
        self._turn = asyncio.Lock()

    def endpoints(self) -> dict[str, Endpoint]:
        """The endpoints to register."""
        return _endpoints(self.advertised, self._security_protocol)

    async def change(self, name: str, change: AdvertisedChange) -> None:
        """Puts it into force, whether or not the caller waits to the end; an empty one restores what is configured.

        Raises `CoordinationError`: then nothing has changed.
        """
        problem = await asyncio.shield(asyncio.create_task(self._change(name, change)))
        if problem is not None:
            raise problem

    async def _change(self, name: str, change: AdvertisedChange) -> CoordinationError | None:
        async with self._turn:
            after = {**self.advertised, name: _changed(self.configured[name], change)}
            try:
                await self._membership.advertise(_endpoints(after, self._security_protocol))
            except CoordinationError as error:
                return error
            self.advertised = after
        return None


def _endpoints(
    advertised: Mapping[str, Advertised], security_protocol: Callable[[str], str]
) -> dict[str, Endpoint]:
    return {name: Endpoint.of(one, security_protocol(name)) for name, one in advertised.items()}


def _changed(configured: Advertised, change: AdvertisedChange) -> Advertised:
    after = configured
    if isinstance(change.address, Address):
        after = after._replace(address=change.address, is_arrival=False)
    elif change.address is not None:
        after = after._replace(is_arrival=True)
    return after if change.networks is None else after._replace(networks=change.networks)
