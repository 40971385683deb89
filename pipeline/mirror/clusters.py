"""Checks of the two clusters before a mirror copies: topics, partitions, and that they are different clusters.

A partition's records go to the partition of the same number, so the target needs as many partitions.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

from echoless.client.connection import BrokerConnection
from echoless.client.security import NO_SECURITY, Security
from echoless.pipeline.batches.partition_leader import connect
from echoless.protocol.errors import ErrorCode

_TIMEOUT_MS: Final = 30_000
_ANSWER_S: Final = _TIMEOUT_MS / 1000 + 10
"""Seconds to wait for an answer that may take `_TIMEOUT_MS`."""
_TOPICS_AT_ONCE: Final = 100
SettingsOf = Callable[[list[str]], Mapping[str, Mapping[str, str]]]
"""Returns the settings of topics of the target, by topic and name."""
_CREATED_MEANWHILE: Final = ErrorCode.TOPIC_ALREADY_EXISTS


class MirrorError(Exception):
    """The mirror cannot work; the message says what to do."""


def with_exclusion(pattern: str, exclude: str | None) -> str:
    """Returns a regular expression, of Java and of Python, for whole names that match one and not the other."""
    return pattern if exclude is None else f"(?!(?:{exclude})$)(?:{pattern})"


def choose_topics(
    counts: Mapping[str, int], names: list[str], pattern: str | None, exclude: str | None = None
) -> list[str]:
    """Chooses the source's topics that are named, or match the pattern. Raises `MirrorError`."""
    if pattern is not None:
        whole = with_exclusion(pattern, exclude)
        found = sorted(name for name in counts if re.fullmatch(whole, name))
        if not found:
            left = "" if exclude is None else f", but those that match {exclude!r}"
            raise MirrorError(f"no topic of the source matches {pattern!r}{left}")
        return found
    missing = [name for name in names if name not in counts]
    if missing:
        raise MirrorError(f"the source has no topic {', '.join(missing)}")
    return names


def check_different(
    source: str,
    target: str,
    *,
    source_security: Security = NO_SECURITY,
    target_security: Security = NO_SECURITY,
) -> None:
    """Refuses a source and a target that are one cluster. Raises `MirrorError`."""
    with connect(source, source_security) as one, connect(target, target_security) as other:
        if _addresses(_metadata(one, [])) & _addresses(_metadata(other, [])):
            raise MirrorError(
                "source and target are one cluster: a --prefix is needed, with which no name matches "
                "--topics-pattern"
            )


def reads_what_it_writes(topics: Iterable[str], pattern: str | None, prefix: str) -> bool:
    """Whether a mirror of these topics within one cluster would read its own output."""
    if not prefix:
        return True
    return pattern is not None and any(re.fullmatch(pattern, prefix + one) for one in topics)


def partition_counts(bootstrap_servers: str, security: Security = NO_SECURITY) -> dict[str, int]:
    """Returns the partition counts of all topics but internal ones. Raises `ConnectionFailedError`."""
    with connect(bootstrap_servers, security) as bootstrap:
        found = _metadata(bootstrap).topics
    return {
        topic.name: len(topic.partitions)
        for topic in found
        if not topic.error_code.value and not topic.is_internal
    }


class TargetTopics:
    """Topics of the target, which are created and extended if that is allowed."""

    def __init__(
        self,
        bootstrap_servers: str,
        *,
        creates: bool,
        replication_factor: int = -1,
        security: Security = NO_SECURITY,
        settings_of: SettingsOf | None = None,
    ) -> None:
        """`settings_of` returns the settings with which topics of the target are created."""
        self._settings_of = settings_of
        self._bootstrap_servers = bootstrap_servers
        self._security = security
        self._creates = creates
        self._replication_factor = replication_factor
        self._counts: dict[str, int] = {}

    def ensure(self, needed: Mapping[str, int]) -> None:
        """Ensures that each topic has this many partitions. Raises `MirrorError`, `ConnectionFailedError`."""
        if self._lacking(needed):
            self._counts = partition_counts(self._bootstrap_servers, self._security)
        lacking = self._lacking(needed)
        if not lacking:
            return
        if not self._creates:
            raise MirrorError(
                "; ".join(self._complaint(topic, lacking[topic]) for topic in lacking)
            )
        self._create_or_extend(lacking)
        self._counts |= lacking

    def _lacking(self, needed: Mapping[str, int]) -> dict[str, int]:
        return {t: count for t, count in needed.items() if self._counts.get(t, 0) < count}

    def _complaint(self, topic: str, count: int) -> str:
        has = f"has {self._counts[topic]}" if topic in self._counts else "does not have the topic"
        return (
            f"{topic} needs {count} partitions, the target {has}: create them, or use "
            "--create-topics"
        )

    def _create_or_extend(self, lacking: Mapping[str, int]) -> None:
        new = {topic: count for topic, count in lacking.items() if topic not in self._counts}
        larger = {topic: count for topic, count in lacking.items() if topic in self._counts}
        with self._controller() as controller:
            if new:
                self._create(controller, new)
            if larger:
                _extend(controller, larger)

    def _create(self, controller: BrokerConnection, new: Mapping[str, int]) -> None:
        settings = {} if self._settings_of is None else self._settings_of(list(new))
        rows = [
            {
                "name": topic,
                "num_partitions": count,
                "replication_factor": self._replication_factor,
                "assignments": (),
                "configs": [
                    {"name": name, "value": value}
                    for name, value in settings.get(topic, {}).items()
                ],
            }
            for topic, count in new.items()
        ]
        for some in _portions(rows):
            fields = {"topics": some, "timeout": _TIMEOUT_MS}
            _check(controller.request("create_topics", fields).topics)

    def _controller(self) -> BrokerConnection:
        with connect(self._bootstrap_servers, self._security) as bootstrap:
            answer = _metadata(bootstrap, [])
        for broker in answer.brokers:
            if broker.node_id == answer.controller_id:
                return BrokerConnection.open(
                    broker.host, broker.port, _ANSWER_S, security=self._security
                )
        return connect(self._bootstrap_servers, self._security)


def _extend(controller: BrokerConnection, larger: Mapping[str, int]) -> None:
    rows = [{"name": topic, "count": n, "assignments": None} for topic, n in larger.items()]
    for some in _portions(rows):
        fields = {"topics": some, "timeout": _TIMEOUT_MS, "validate_only": False}
        _check(controller.request("create_partitions", fields).results)


def _portions(rows: list[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    """Divides topics so that a request with them is answered in time."""
    for first in range(0, len(rows), _TOPICS_AT_ONCE):
        yield rows[first : first + _TOPICS_AT_ONCE]


def _metadata(connection: BrokerConnection, topics: list[Any] | None = None) -> Any:
    """Requests kio's MetadataResponse, with all topics if none are given."""
    fields = {
        "topics": topics,
        "allow_auto_topic_creation": False,
        "include_cluster_authorized_operations": False,
        "include_topic_authorized_operations": False,
    }
    return connection.request("metadata", fields)


def _addresses(answer: Any) -> set[tuple[str, int]]:
    return {(broker.host, broker.port) for broker in answer.brokers}


def _check(results: Any) -> None:
    """Raises `MirrorError` for the first topic that could not be created."""
    for one in results:
        code = one.error_code.value
        if code not in (ErrorCode.NONE, _CREATED_MEANWHILE):
            reason = getattr(one, "error_message", None) or one.error_code.name.upper()
            raise MirrorError(f"{one.name} cannot be created in the target: {reason}")
