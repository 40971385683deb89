"""Settings of topics, as DescribeConfigs has them: for the audit, which has to know whether a topic is compacted, and the mirror."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, Final, NamedTuple

from echoless.client.connection import BrokerConnection

CLEANUP_POLICY: Final = "cleanup.policy"
TOPIC_RESOURCE: Final = 2
_OF_TOPIC: Final = 1
"""Source of a value that was set for the topic itself; others are defaults of brokers."""
_TOPICS_AT_ONCE: Final = 200


class DescribedSetting(NamedTuple):
    """The value of one setting of a topic."""

    value: str | None
    is_own: bool
    """Whether it was set for the topic itself."""


def read_topic_settings(
    connection: BrokerConnection, topics: Iterable[str], names: Sequence[str] | None = None
) -> dict[str, dict[str, DescribedSetting]]:
    """Returns the settings with these names, or all, by topic; topics that may not be described are left out.

    Raises `ConnectionFailedError`.
    """
    found: dict[str, dict[str, DescribedSetting]] = {}
    for some in _in_portions(topics):
        resources = [
            {"resource_type": TOPIC_RESOURCE, "resource_name": topic, "configuration_keys": names}
            for topic in some
        ]
        for result in connection.request("describe_configs", {"resources": resources}).results:
            if not result.error_code.value:
                found[result.resource_name] = {one.name: _setting(one) for one in result.configs}
    return found


def _setting(config: Any) -> DescribedSetting:
    return DescribedSetting(config.value, config.config_source == _OF_TOPIC)


def _in_portions(topics: Iterable[str]) -> Iterator[list[str]]:
    rest = iter(topics)
    while some := list(islice(rest, _TOPICS_AT_ONCE)):
        yield some
