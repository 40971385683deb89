"""The servers that are asked for leases."""

from __future__ import annotations

from pathlib import Path

import pytest

from echoless.client.cluster import BrokerAddress, parse_addresses
from echoless.client.lease_request import NoLeasesError
from echoless.client.lease_servers import LeaseServers
from echoless.client.topic_partition import TopicPartition
from tests.support.in_process import in_process
from tests.support.native_client import NativeConnection

NOBODY = BrokerAddress("127.0.0.1", 1)


async def test_brokers_are_learnt_from_who_answers(tmp_path: Path) -> None:
    """They are asked first from then on; what was given stays, for when all of them are gone."""
    async with in_process(tmp_path) as running:
        native = await NativeConnection.open(running.native_address)
        await native.call("create_topic", topic="t", partitions=1)
        await native.close()
        (broker,) = parse_addresses(running.native_address)
        servers = LeaseServers([NOBODY, broker], timeout_s=10.0)
        assert servers.addresses == (NOBODY, broker)
        leased = await servers.request([TopicPartition("t", 0)], 5.0)
        assert list(leased) == [TopicPartition("t", 0)]
        assert servers.addresses == (broker, NOBODY)


async def test_nobody_is_told_with_the_reason() -> None:
    """The message has the address that was tried."""
    with pytest.raises(NoLeasesError, match=r"127\.0\.0\.1:1"):
        await LeaseServers([NOBODY], timeout_s=1.0).request([TopicPartition("t", 0)], 5.0)
