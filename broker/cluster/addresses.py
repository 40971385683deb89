"""The addresses at which clients reach the brokers of the cluster."""

from __future__ import annotations

from echoless.broker.cluster.membership import ClusterMembership
from echoless.broker.config.values import Address


def client_addresses(cluster: ClusterMembership, listener: str) -> dict[int, Address]:
    """Each broker's address on this listener, by broker id; brokers without the listener are left out."""
    return {
        broker_id: Address(endpoint.host, endpoint.port)
        for broker_id, info in cluster.brokers_for_clients.items()
        if (endpoint := info.endpoints.get(listener)) is not None
    }


def listener_addresses(cluster: ClusterMembership, broker_id: int) -> dict[str, Address]:
    """The addresses of one broker by the names of its listeners; none while it is not registered."""
    info = cluster.brokers_for_clients.get(broker_id)
    endpoints = {} if info is None else info.endpoints
    return {name: Address(one.host, one.port) for name, one in endpoints.items()}
