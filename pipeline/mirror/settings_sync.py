"""Settings of the source's topics, for those of the target: at their creation, and later when they change.

Only what was set for a topic itself is copied, and nothing that belongs to one cluster alone. A setting that the source no
longer has stays in the target, where somebody may have set it.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from echoless.client.connection import ConnectionFailedError
from echoless.client.messages import UnservedApiError
from echoless.client.security import Security
from echoless.pipeline.batches.partition_leader import connect
from echoless.pipeline.batches.topic_settings import TOPIC_RESOURCE, read_topic_settings

_LOG: Final = logging.getLogger(__name__)
INTERVAL_S_DEFAULT: Final = 600.0
_SET: Final = 0
_NOT_COPIED: Final = frozenset(
    (
        *("follower.replication.throttled.replicas", "leader.replication.throttled.replicas"),
        *("message.timestamp.type", "message.timestamp.difference.max.ms"),
        *("message.timestamp.before.max.ms", "message.timestamp.after.max.ms"),
        *("min.insync.replicas", "unclean.leader.election.enable"),
    )
)
"""Settings of a cluster's replicas, and those that would change or refuse the timestamps of copies."""


@dataclass(slots=True, kw_only=True)
class SettingsSync:
    """Copies the settings of topics. Used from the mirror's own threads, one at a time."""

    source: str
    source_security: Security
    target: str
    target_security: Security
    prefix: str
    interval_s: float = INTERVAL_S_DEFAULT
    clock_s: Callable[[], float] = time.monotonic
    _due_s: float = field(default=-1.0)

    def of_target_topics(self, topics: list[str]) -> dict[str, dict[str, str]]:
        """Returns the settings for topics of the target, by name. Raises `ConnectionFailedError`."""
        names = [topic.removeprefix(self.prefix) for topic in topics]
        with connect(self.source, self.source_security) as connection:
            found = read_topic_settings(connection, names)
        return {
            self.prefix + topic: {
                name: one.value
                for name, one in settings.items()
                if one.is_own and one.value is not None and name not in _NOT_COPIED
            }
            for topic, settings in found.items()
        }

    def sync_if_due(self, topics: Callable[[], list[str]]) -> None:
        """Copies changed settings if it is time; a failure is logged, and tried again at the next time.

        `topics` returns the topics of the source that are mirrored. The first time comes after an interval.
        """
        now = self.clock_s()
        if self._due_s < 0:
            self._due_s = now + self.interval_s
        if now < self._due_s:
            return
        self._due_s = now + self.interval_s
        try:
            self.sync(topics())
        except (ConnectionFailedError, UnservedApiError) as error:
            _LOG.warning("settings of topics are not copied: %s", error)

    def sync(self, topics: list[str]) -> dict[str, dict[str, str]]:
        """Sets in the target what differs; returns it. Raises `ConnectionFailedError`, `UnservedApiError`."""
        found = self.of_target_topics([self.prefix + topic for topic in topics])
        wanted = {topic: settings for topic, settings in found.items() if settings}
        if not wanted:
            return {}
        names = sorted({name for settings in wanted.values() for name in settings})
        with connect(self.target, self.target_security) as connection:
            there = read_topic_settings(connection, wanted, names)
            changes = {
                topic: changed
                for topic, settings in wanted.items()
                if topic in there and (changed := _changed(settings, there[topic]))
            }
            if changes:
                answer = connection.request("incremental_alter_configs", _request(changes))
                for one in answer.responses:
                    if one.error_code.value:
                        _LOG.warning("%s: %s", one.resource_name, one.error_message)
        return changes


def _changed(wanted: Mapping[str, str], there: Mapping[str, Any]) -> dict[str, str]:
    return {
        name: value
        for name, value in wanted.items()
        if name in there and there[name].value != value
    }


def _request(changes: Mapping[str, Mapping[str, str]]) -> dict[str, Any]:
    resources = [
        {
            "resource_type": TOPIC_RESOURCE,
            "resource_name": topic,
            "configs": [
                {"name": name, "config_operation": _SET, "value": value}
                for name, value in settings.items()
            ],
        }
        for topic, settings in changes.items()
    ]
    return {"resources": resources, "validate_only": False}
