"""Logs on disk that this broker should not have, set aside at the start (`storage/strays.py`).

Their topic was deleted while the broker was down, or something is damaged; the broker cannot tell
which, so it deletes nothing. Only logs of a topic that the registry names as deleted, by its id, are removed.
"""

from __future__ import annotations

import logging
import uuid

from echoless.broker.metadata.topic_registry import TopicRegistry
from echoless.broker.partitions.assignment import BrokerAssignment, Key
from echoless.storage.log_directory import LogDirectory
from echoless.storage.pending_removal import PendingRemoval
from echoless.storage.properties_file import encode_uuid

logger = logging.getLogger(__name__)


def finish_deletions(logs: LogDirectory, registry: TopicRegistry) -> PendingRemoval | None:
    """Takes out the logs of topics whose deletion was cut short after it had become durable.

    Returns the removal of their files, if there are any. Raises `StorageError`.
    """
    keys = [
        key for key, topic_id in logs.topic_ids.items() if registry.deleted.get(key[0]) == topic_id
    ]
    if not keys:
        return None
    pending = logs.forget(keys)
    pending.run()
    logger.info("finished the deletion of %d partitions, %s-%d first", len(keys), *keys[0])
    return pending


def set_strays_aside(
    logs: LogDirectory, registry: TopicRegistry, broker_id: int, now_ms: int
) -> None:
    """Sets aside the logs that the registry does not assign to this broker. Raises `StorageError`.

    Call it before the broker joins: a replica that lacks its log must not count as in sync.
    """
    assigned = BrokerAssignment(registry, broker_id)
    reasons: dict[Key, str] = {}
    for key, topic_id in logs.topic_ids.items():
        reason = _reason(registry, assigned, key, topic_id)
        if reason is not None:
            reasons[key] = reason
    if any(assigned.includes_name(key) for key in reasons):
        logs.doubt_tail()  # a replica that should be here begins anew
    logs.set_aside(reasons, now_ms=now_ms)


def _reason(
    registry: TopicRegistry, assigned: BrokerAssignment, key: Key, topic_id: uuid.UUID
) -> str | None:
    """Why a log found on disk is not one of this broker's; None if it is."""
    name = key[0]
    topic = registry.topics.get(name)
    if topic is None:
        return f"there is no topic {name} (it was deleted, or the coordinator lost it)"
    if topic.topic_id != topic_id:
        return (
            f"it belongs to a topic of id {encode_uuid(topic_id)}, but {name} has id "
            f"{encode_uuid(topic.topic_id)} (it was deleted and created again, or "
            f"partition.metadata is damaged)"
        )
    if not assigned.includes(key, topic_id):
        return f"the replica is not assigned to broker {assigned.broker_id}"
    return None
