"""The addresses at which clients reach the brokers of the cluster.

A client is given every broker's address on the listener that it came by: the one for its own network if the broker has
one, else the one for all. Only the broker that it is connected to knows where it arrived.

Invariant: clients are never given a wildcard, and of other brokers only addresses that those have registered.
"""

from __future__ import annotations

from echoless.broker.cluster.membership import ClusterMembership
from echoless.broker.config.advertised import ARRIVAL, address_in
from echoless.broker.config.values import Address
from echoless.broker.metadata.node_data import NO_LEADER
from echoless.broker.metadata.registration import Endpoint
from echoless.broker.network.request import Peer
from echoless.broker.partitions.partition import Partition
from echoless.protocol.node_endpoints import LeaderHint, NodeEndpoint


def client_addresses(cluster: ClusterMembership, peer: Peer) -> dict[int, Address]:
    """Each broker's address for this client, by broker id; brokers without its listener are left out."""
    listener = peer.listener
    return {
        broker_id: _address_for(peer, endpoint, is_own=broker_id == cluster.broker_id)
        for broker_id, info in cluster.brokers_for_clients.items()
        if (endpoint := info.endpoints.get(listener)) is not None
    }


def other_leader(cluster: ClusterMembership, partition: Partition, peer: Peer) -> LeaderHint | None:
    """The leader to ask instead; no hint is better than "no leader", or this broker again."""
    leader_id = partition.leader_id
    if leader_id == NO_LEADER or partition.is_leader:
        return None
    info = cluster.brokers_for_clients.get(leader_id)
    endpoint = None if info is None else info.endpoints.get(peer.listener)
    if info is None or endpoint is None:
        return LeaderHint(leader_id, partition.leader_epoch)
    host, port = _address_for(peer, endpoint, is_own=leader_id == cluster.broker_id)
    node = NodeEndpoint(leader_id, host, port, info.rack)
    return LeaderHint(leader_id, partition.leader_epoch, node)


def listener_addresses(cluster: ClusterMembership, broker_id: int) -> dict[str, Address]:
    """The addresses of one broker by the names of its listeners; none while it is not registered."""
    info = cluster.brokers_for_clients.get(broker_id)
    endpoints = {} if info is None else info.endpoints
    return {name: Address(one.host, one.port) for name, one in endpoints.items()}


def _address_for(peer: Peer, endpoint: Endpoint, *, is_own: bool) -> Address:
    general = Address(endpoint.host, endpoint.port)
    found = address_in(endpoint.networks, peer.host) if endpoint.networks else None
    if isinstance(found, Address):
        return found
    if is_own and (found is ARRIVAL or endpoint.is_arrival):
        return peer.arrived_at or general
    return general
