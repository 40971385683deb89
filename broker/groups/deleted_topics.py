"""Forgetting the offsets of a topic that was deleted, in every shard of this broker.

Another topic of that name may exist by now, so commits that are later than the deletion stay.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Final

from echoless.broker.groups.shard import GroupShard
from echoless.broker.network.turns import work_in_turns
from echoless.broker.state_topics.shard_state import ShardState
from echoless.coordinators.groups.deleted_topic import DeletedTopic

FORGET_AGAIN_S: Final = 1.0
"""First pause before a shard is asked again to forget a deleted topic; each is twice as long as the one before."""
_FORGET_AGAIN_MAX_S: Final = 60.0


async def forget(name: str, deleted_ms: int, shards: Mapping[int, GroupShard]) -> None:
    """Forgets the offsets of a topic: in shards that are loading once they serve, after failures again.

    `shards` may change meanwhile; `deleted_ms` is the wall clock at the deletion.
    """
    topics: dict[GroupShard, DeletedTopic] = {}
    pause_s = FORGET_AGAIN_S
    while True:
        for shard in list(shards.values()):
            topic = topics.setdefault(shard, DeletedTopic(name, deleted_ms))
            if not topic.is_forgotten:
                await _forget_in(shard, topic)
        if all(_is_done(shard, topics.get(shard)) for shard in shards.values()):
            return
        await asyncio.sleep(pause_s)
        pause_s = min(2 * pause_s, _FORGET_AGAIN_MAX_S)


async def _forget_in(shard: GroupShard, topic: DeletedTopic) -> None:
    await work_in_turns(
        shard.perform_in_turn(lambda coordinator, _now: coordinator.forget_topic(topic))
    )


def _is_done(shard: GroupShard, topic: DeletedTopic | None) -> bool:
    """Whether nothing is left to forget in the shard. One that cannot be loaded forgets nothing."""
    return shard.state is ShardState.FAILED or (topic is not None and topic.is_forgotten)
