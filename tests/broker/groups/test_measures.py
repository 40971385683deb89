"""The figures of a broker's groups, over commits and the end of a coordinator."""

from __future__ import annotations

from typing import Any

import pytest

from echoless.client.cluster import Cluster, parse_addresses
from echoless.client.coordinator import Coordinator
from echoless.client.copier.positions import CommittedPosition, Positions
from echoless.client.groups.errors import GenerationOverError
from echoless.client.groups.member import GroupMember, MemberSettings
from echoless.coordinators.groups.answers import CommittedOffset
from tests.support.in_process import in_process
from tests.support.raw_client import RawConnection, create_topic


@pytest.mark.slow
async def test_figures_follow_the_groups(tmp_path: Any) -> None:
    """Commits and rebalances are counted for good, members as long as they are there."""

    async def count(topics: Any) -> dict[str, int]:
        return dict.fromkeys(topics, 1)

    async with in_process(tmp_path) as running:
        connection = await RawConnection.open(running.kafka_address)
        await create_topic(connection, "t", 1)
        await connection.close()
        cluster = Cluster(parse_addresses(running.kafka_address), timeout_s=10)
        coordinator = Coordinator(cluster, "g", timeout_s=10)
        member = GroupMember(coordinator, MemberSettings(group="g", protocol="p"), count)
        groups, metrics = running.broker.groups, running.broker.metrics
        generation = await member.join(["t"])
        positions = Positions(coordinator, None)
        await positions.commit(generation, {("t", 0): CommittedPosition(7, "")})
        assert list(groups.committed()) == [CommittedOffset("g", "t", 0, 7)]
        assert (groups.member_count, groups.rebalances_completed) == (1, 1)
        assert metrics.group_offsets_committed_total == 1
        await member.leave()
        with pytest.raises(GenerationOverError):
            await positions.commit(generation, {("t", 0): CommittedPosition(8, "")})
        assert metrics.group_offsets_refused_total == 1
        assert groups.member_count == 0
        for shard in list(groups.shards.values()):
            groups.lost(shard.partition)
        assert groups.rebalances_completed >= 1
        await cluster.close()
