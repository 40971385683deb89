"""Raising an old copy of the coordinator's data to what a data directory proves of a newer one.

`old_copy.py` says what a directory proves, and why a broker refuses to start on an old copy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from echoless.broker.metadata.node_data import NO_LEADER
from echoless.broker.metadata.old_copy import OldCopyError, OldEpoch, old_epochs
from echoless.broker.metadata.producer_id_block import PATH, raise_block
from echoless.broker.metadata.topic import StateChange
from echoless.broker.metadata.tree_mark import NO_MARK, mark_path, raise_mark
from echoless.broker.tree.node_tree import NodeTree

if TYPE_CHECKING:
    from echoless.broker.metadata.topic_registry import TopicRegistry
    from echoless.storage.log_directory import LogDirectory


async def catch_up(
    tree: NodeTree, registry: TopicRegistry, logs: LogDirectory, broker_id: int
) -> list[str]:
    """Raises the tree to what `logs` proves; returns a line for each change. Raises `CoordinationError`.

    The broker must not be running, and the registry must have been loaded.
    """
    done = []
    seen = logs.seen_counts()
    if await raise_block(tree, seen.last_id):
        done.append(f"{PATH}: the next producer id is above {seen.last_id}")
    if seen.mark != NO_MARK and await raise_mark(tree, broker_id, seen.mark):
        done.append(f"{mark_path(broker_id)}: {seen.mark}")
    changes = [_raised(one) for one in old_epochs(registry.topics, logs)]
    await registry.change_states(changes)
    done += [
        f"{one.topic}-{one.partition}: leader epoch {one.after.leader_epoch}" for one in changes
    ]
    return done


def _raised(old: OldEpoch) -> StateChange:
    before = old.state
    if before is None:
        raise OldCopyError(f"{old.topic}-{old.partition} has no state in the coordinator")
    after = before._replace(leader=NO_LEADER, leader_epoch=old.log_epoch + 1)
    return StateChange(old.topic, old.partition, before, after)
