"""Committed offsets of the groups of a cluster, without being a member: lists, reads and commits them.

Commits are those of a tool (no generation): a coordinator refuses them while the group has members.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple, Self, TypeVar

from echoless.client.answers import error_name
from echoless.client.connection import BrokerConnection
from echoless.client.security import NO_SECURITY, Security
from echoless.client.topic_partition import TopicPartition
from echoless.pipeline.batches.partition_leader import connect, read_metadata
from echoless.protocol.errors import ErrorCode

_ATTEMPTS: Final = 3
_MOVED: Final = (
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
)
_GROUP_KEY: Final = 0
_T = TypeVar("_T")


class GroupRefusedError(Exception):
    """A coordinator refuses something about a group; the message names the group and the error."""


class GroupCommit(NamedTuple):
    """The commit of a group for one partition."""

    offset: int
    metadata: str = ""


class ClusterGroups:
    """The groups of one cluster. Use it in a `with` block; connections are kept until its end."""

    def __init__(self, bootstrap_servers: str, security: Security = NO_SECURITY) -> None:
        self._bootstrap_servers = bootstrap_servers
        self._security = security
        self._connections: dict[tuple[str, int], BrokerConnection] = {}
        self._coordinators: dict[str, tuple[str, int]] = {}

    def list_groups(self) -> list[str]:
        """Returns the groups of consumers, by name. Raises `ConnectionFailedError`."""
        with connect(self._bootstrap_servers, self._security) as bootstrap:
            brokers = [(one.host, one.port) for one in read_metadata(bootstrap, None).brokers]
        fields: dict[str, list[str]] = {"states_filter": [], "types_filter": []}
        return sorted(
            one.group_id
            for broker in brokers
            for one in self._connected(broker).request("list_groups", fields).groups
            if one.protocol_type in ("consumer", "")
        )

    def committed(self, group: str) -> dict[TopicPartition, GroupCommit]:
        """Returns what the group has committed. Raises `ConnectionFailedError`, `GroupRefusedError`."""
        wanted = {"group_id": group, "member_id": None, "member_epoch": -1, "topics": None}
        fields = {"groups": [wanted], "group_id": group, "topics": None, "require_stable": False}

        def read(answer: Any) -> tuple[int, dict[TopicPartition, GroupCommit]]:
            found = answer.groups[0] if hasattr(answer, "groups") else answer
            return found.error_code.value, {
                TopicPartition(topic.name, row.partition_index): GroupCommit(
                    row.committed_offset, row.metadata or ""
                )
                for topic in found.topics
                for row in topic.partitions
                if row.committed_offset >= 0
            }

        return self._ask(group, "offset_fetch", fields, read)

    def commit(self, group: str, offsets: Mapping[TopicPartition, GroupCommit]) -> None:
        """Commits for a group without members. Raises `ConnectionFailedError`, `GroupRefusedError`."""
        topics: dict[str, list[dict[str, Any]]] = {}
        for (topic, index), committed in offsets.items():
            row = {
                "partition_index": index,
                "committed_offset": committed.offset,
                "committed_leader_epoch": -1,
                "committed_metadata": committed.metadata,
            }
            topics.setdefault(topic, []).append(row)
        fields = {
            "group_id": group,
            "generation_id_or_member_epoch": -1,
            "member_id": "",
            "group_instance_id": None,
            "topics": [{"name": name, "partitions": rows} for name, rows in topics.items()],
        }

        def read(answer: Any) -> tuple[int, None]:
            codes = [row.error_code.value for topic in answer.topics for row in topic.partitions]
            return next((code for code in codes if code), 0), None

        self._ask(group, "offset_commit", fields, read)

    def _ask(
        self,
        group: str,
        api: str,
        fields: Mapping[str, Any],
        read: Callable[[Any], tuple[int, _T]],
    ) -> _T:
        code = 0
        for _ in range(_ATTEMPTS):
            code, found = read(self._coordinator(group).request(api, fields))
            if not code:
                return found
            self._coordinators.pop(group, None)
            if code not in _MOVED:
                break
        raise GroupRefusedError(f"group {group}: {api}: {error_name(code)}")

    def _coordinator(self, group: str) -> BrokerConnection:
        if group not in self._coordinators:
            fields = {"key_type": _GROUP_KEY, "coordinator_keys": [group], "key": group}
            with connect(self._bootstrap_servers, self._security) as bootstrap:
                answer = bootstrap.request("find_coordinator", fields)
            found = answer.coordinators[0] if hasattr(answer, "coordinators") else answer
            if found.error_code.value:
                name = error_name(found.error_code.value)
                raise GroupRefusedError(f"group {group}: find_coordinator: {name}")
            self._coordinators[group] = found.host, found.port
        return self._connected(self._coordinators[group])

    def _connected(self, address: tuple[str, int]) -> BrokerConnection:
        if address not in self._connections:
            opened = BrokerConnection.open(*address, security=self._security)
            self._connections[address] = opened
        return self._connections[address]

    def close(self) -> None:
        """Closes all connections; later requests open new ones."""
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()
        self._coordinators.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
