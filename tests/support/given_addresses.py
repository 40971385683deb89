"""The addresses that a broker gives to a client, from each of the answers that have any."""

from __future__ import annotations

import ssl

from echoless.broker.config.values import Address
from tests.support.raw_client import RawConnection


async def given_addresses(connection: RawConnection) -> dict[int, Address]:
    """By broker id, as Metadata, DescribeCluster and FindCoordinator answer: they never differ."""
    metadata = await connection.call(
        "metadata",
        12,
        topics=(),
        allow_auto_topic_creation=False,
        include_topic_authorized_operations=False,
    )
    not_asked = {"include_cluster_authorized_operations": False}
    cluster = await connection.call("describe_cluster", 1, **not_asked, endpoint_type=1)
    found = await connection.call("find_coordinator", 4, key_type=0, coordinator_keys=("group",))
    given = {one.node_id: Address(one.host, one.port) for one in metadata.brokers}
    assert given == {one.broker_id: Address(one.host, one.port) for one in cluster.brokers}
    for one in found.coordinators:
        assert given[one.node_id] == Address(one.host, one.port)
    return given


async def given_to_a_client(
    address: str, *, source: str | None = None, context: ssl.SSLContext | None = None
) -> dict[int, Address]:
    """The same for a client that connects to `address` from its own address `source`; with a context, by TLS."""
    connection = await RawConnection.open(address, context, source)
    try:
        return await given_addresses(connection)
    finally:
        await connection.close()
