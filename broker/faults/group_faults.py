"""Faults of consumer groups that take place at once: the end of members' sessions, another coordinator."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from echoless.broker.essential_task import reported_task
from echoless.broker.faults.fields import RuleError
from echoless.broker.metadata.topic import StateChange
from echoless.broker.tree.node_tree import CoordinationError

if TYPE_CHECKING:
    from echoless.broker.faults.action import Action
    from echoless.broker.groups.shard import GroupShard
    from echoless.broker.services import Services

logger = logging.getLogger(__name__)


def planned(action: Action, services: Services | None) -> Callable[[], None]:
    """The work of a rule, once it is certain that it can be done. Raises `RuleError`."""
    assert action.group is not None
    shard = _shard_of(action.group, services)
    assert services is not None
    if action.type == "expire_member":
        return _expiry(shard, action.group, action.member)
    return _move(shard, services)


def _shard_of(group: str, services: Services | None) -> GroupShard:
    shard = None if services is None else services.groups.shard_of(group)
    if shard is None or shard.coordinator is None:
        raise RuleError(f"action.group: this broker does not coordinate {group!r} at the moment")
    return shard


def _expiry(shard: GroupShard, group: str, member: str | None) -> Callable[[], None]:
    coordinator = shard.coordinator
    assert coordinator is not None
    if not coordinator.sessions_of(group, member):
        who = "no member" if member is None else f"no member, instance or client {member!r}"
        raise RuleError(f"action: {group!r} has {who}")
    return lambda: shard.expire_sessions(group, member)


def _move(shard: GroupShard, services: Services) -> Callable[[], None]:
    partition = shard.partition
    topic = services.registry.topics.get(partition.topic)
    before = None if topic is None else topic.states.get(partition.index)
    others = [] if before is None else [one for one in before.isr if one != before.leader]
    if before is None or not others:
        raise RuleError(
            f"move_coordinator: {partition.name} has no other replica in sync that could lead it"
        )
    after = before._replace(leader=others[0], leader_epoch=before.leader_epoch + 1)
    change = StateChange(partition.topic, partition.index, before, after)

    async def write() -> None:
        try:
            await services.registry.change_states([change])
        except CoordinationError as error:
            logger.warning("%s keeps its leader: %s", partition.name, error)

    return lambda: _begin(write, partition.name)


def _begin(write: Callable[[], object], name: str) -> None:
    reported_task(write(), f"another leader for {name}")  # type: ignore[arg-type]
