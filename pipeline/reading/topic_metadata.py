"""Topics and their leaders, as metadata has them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from echoless.pipeline.reading.connections import Address, ask_any, note_brokers
from echoless.pipeline.reading.errors import ReadError
from echoless.pipeline.reading.options import ReaderOptions
from echoless.protocol.errors import ErrorCode

_MISSING: Final = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)


class FoundTopic(NamedTuple):
    """A topic that exists."""

    topic_id: Any
    """A `uuid.UUID`; None if the brokers have no ids (before 2.8)."""
    is_internal: bool
    leaders: Mapping[int, Address | None]
    """By partition; None where there is no leader now."""

    @property
    def id_text(self) -> str | None:
        """The id as plans and checkpoints have it."""
        return None if self.topic_id is None else str(self.topic_id)

    def may_be(self, other: FoundTopic) -> bool:
        """Whether that is this topic, as far as both ids are known: brokers begin to have them one after the other."""
        return None in (self.topic_id, other.topic_id) or self.topic_id == other.topic_id


def read_topics(options: ReaderOptions, names: Sequence[str] | None) -> dict[str, FoundTopic]:
    """Asks for these topics, or for all; those that do not exist are left out.

    Raises `ConnectionFailedError`, and `ReadError` for one that may not be described.
    """
    answer = ask_any(
        options,
        "metadata",
        {
            "topics": names
            if names is None
            else [{"name": name, "topic_id": None} for name in names],
            "allow_auto_topic_creation": False,
            "include_cluster_authorized_operations": False,
            "include_topic_authorized_operations": False,
        },
    )
    brokers = {one.node_id: (one.host, one.port) for one in answer.brokers}
    note_brokers(options, brokers.values())
    found = {}
    for topic in answer.topics:
        code = topic.error_code.value
        if code in _MISSING:
            continue
        if code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            raise ReadError(
                f"topic {topic.name}: it may not be described: the reader needs the right to read it"
            )
        if code and code != ErrorCode.LEADER_NOT_AVAILABLE:
            raise ReadError(f"topic {topic.name}: {topic.error_code.name.upper()}")
        leaders = {
            one.partition_index: brokers.get(one.leader_id)
            for one in sorted(topic.partitions, key=lambda one: one.partition_index)
        }
        topic_id = getattr(topic, "topic_id", None)
        found[topic.name] = FoundTopic(topic_id, bool(topic.is_internal), leaders)
    return found
