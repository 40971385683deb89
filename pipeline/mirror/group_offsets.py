"""Committed offsets of the groups of a cluster, without being a member: lists, reads and commits them.

Many groups are read in few requests: one FindCoordinator, and one OffsetFetch for each broker, by portions. Brokers that are too
old for that are asked group by group. Commits are those of a tool (no generation): a coordinator refuses them while the group has
members.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Final, NamedTuple, Self, TypeVar

from echoless.client.answers import error_name
from echoless.client.connection import BrokerConnection
from echoless.client.security import NO_SECURITY, Security
from echoless.client.topic_partition import TopicPartition
from echoless.pipeline.batches.partition_leader import connect
from echoless.protocol.errors import ErrorCode

_LOG: Final = logging.getLogger(__name__)
_PAUSES_S: Final = (0.1, 0.2, 0.4, 0.8, 1.6)
"""Pauses between attempts: a coordinator that has just been chosen, as on a new cluster, loads first."""
_GROUPS_AT_ONCE: Final = 200
_MOVED: Final = (
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
)
_GROUP_KEY: Final = 0
_T = TypeVar("_T")
_Address = tuple[str, int]


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
        self._bootstrap: BrokerConnection | None = None
        self._connections: dict[_Address, BrokerConnection] = {}
        self._coordinators: dict[str, _Address] = {}

    def list_groups(self) -> list[str]:
        """Returns the groups of consumers, by name. Raises `ConnectionFailedError`."""
        metadata = {
            "topics": [],
            "allow_auto_topic_creation": False,
            "include_cluster_authorized_operations": False,
            "include_topic_authorized_operations": False,
        }
        brokers = self._asked_first().request("metadata", metadata).brokers
        fields: dict[str, list[str]] = {"states_filter": [], "types_filter": []}
        return sorted(
            one.group_id
            for broker in brokers
            for one in self._connected((broker.host, broker.port))
            .request("list_groups", fields)
            .groups
            if one.protocol_type in ("consumer", "")
        )

    def committed(self, group: str) -> dict[TopicPartition, GroupCommit]:
        """Returns what the group has committed. Raises `ConnectionFailedError`, `GroupRefusedError`."""
        return self._ask(group, "offset_fetch", _fetch_fields([group]), _read_only)

    def committed_of(self, groups: Iterable[str]) -> dict[str, dict[TopicPartition, GroupCommit]]:
        """Returns what each group has committed; groups that are refused are logged and left out.

        Raises `ConnectionFailedError`.
        """
        found: dict[str, dict[TopicPartition, GroupCommit]] = {}
        for some in _in_portions(groups):
            self._find_coordinators(some)
            by_coordinator: dict[_Address, list[str]] = {}
            for group in some:
                if group in self._coordinators:
                    by_coordinator.setdefault(self._coordinators[group], []).append(group)
            for address, theirs in by_coordinator.items():
                answer = self._connected(address).request("offset_fetch", _fetch_fields(theirs))
                for one in getattr(answer, "groups", ()):
                    code, commits = _read_group(one)
                    if not code:
                        found[one.group_id] = commits
            found |= self._committed_one_by_one(one for one in some if one not in found)
        return found

    def _committed_one_by_one(
        self, groups: Iterable[str]
    ) -> dict[str, dict[TopicPartition, GroupCommit]]:
        """Asks for groups that a common answer did not have."""
        found = {}
        for group in groups:
            try:
                found[group] = self.committed(group)
            except GroupRefusedError as error:
                _LOG.warning("offsets are not read: %s", error)
        return found

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
        asked = "find_coordinator"
        for pause_s in (0.0, *_PAUSES_S):
            time.sleep(pause_s)
            asked, code = "find_coordinator", self._find_coordinators([group])
            if not code:
                connection = self._connected(self._coordinators[group])
                asked, (code, found) = api, read(connection.request(api, fields))
                if not code:
                    return found
                del self._coordinators[group]
            if code not in _MOVED:
                break
        raise GroupRefusedError(f"group {group}: {asked}: {error_name(code)}")

    def _find_coordinators(self, groups: Sequence[str]) -> int:
        """Notes the coordinators of groups; returns the last error, of one that has none now."""
        wanted = [group for group in groups if group not in self._coordinators]
        if not wanted:
            return 0
        fields = {"key_type": _GROUP_KEY, "coordinator_keys": wanted, "key": wanted[0]}
        answer = self._asked_first().request("find_coordinator", fields)
        code = 0
        for found in getattr(answer, "coordinators", (answer,)):
            if found.error_code.value:
                code = found.error_code.value
            else:
                self._coordinators[getattr(found, "key", wanted[0])] = found.host, found.port
        return code

    def _asked_first(self) -> BrokerConnection:
        if self._bootstrap is None:
            self._bootstrap = connect(self._bootstrap_servers, self._security)
        return self._bootstrap

    def _connected(self, address: _Address) -> BrokerConnection:
        if address not in self._connections:
            opened = BrokerConnection.open(*address, security=self._security)
            self._connections[address] = opened
        return self._connections[address]

    def close(self) -> None:
        """Closes all connections; later requests open new ones."""
        if self._bootstrap is not None:
            self._bootstrap.close()
            self._bootstrap = None
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()
        self._coordinators.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _fetch_fields(groups: Sequence[str]) -> dict[str, Any]:
    """Fields of an OffsetFetch; before version 8 it has room for the first group only."""
    rows = [
        {"group_id": group, "member_id": None, "member_epoch": -1, "topics": None}
        for group in groups
    ]
    return {"groups": rows, "group_id": groups[0], "topics": None, "require_stable": False}


def _read_only(answer: Any) -> tuple[int, dict[TopicPartition, GroupCommit]]:
    """Reads the answer for a single group: its error, and its commits."""
    return _read_group(answer.groups[0] if hasattr(answer, "groups") else answer)


def _read_group(found: Any) -> tuple[int, dict[TopicPartition, GroupCommit]]:
    return found.error_code.value, {
        TopicPartition(topic.name, row.partition_index): GroupCommit(
            row.committed_offset, row.metadata or ""
        )
        for topic in found.topics
        for row in topic.partitions
        if row.committed_offset >= 0
    }


def _in_portions(groups: Iterable[str]) -> Iterator[list[str]]:
    rest = iter(groups)
    while some := list(islice(rest, _GROUPS_AT_ONCE)):
        yield some
