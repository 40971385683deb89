"""Telling an old copy of the coordinator's data from the newest, by what a data directory proves.

A coordinator that was restored from a backup hands out producer ids a second time, so that new records
pass for repeats and are acknowledged without being stored; and it lets a leader epoch come again. Two
things in a data directory prove that there was a newer tree: the last producer id that a broker on it has
claimed, and the leader epochs in its logs. While the tree says less nothing may be served.

`tree_catch_up.py` raises the tree to what a directory proves, for an operator who has no newer copy.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from echoless.broker.metadata.node_data import LeaderAndIsr
from echoless.broker.metadata.topic import Topic
from echoless.broker.tree.node_tree import CoordinationError

if TYPE_CHECKING:
    from echoless.broker.metadata.topic_registry import TopicRegistry
    from echoless.storage.log_directory import LogDirectory

REMEDY: Final = (
    "bring back its newest data, or raise it to what this data directory proves: echoless coordinator "
    "catch-up"
)
LAG_CHECKS_MAX: Final = 4
LAG_PAUSE_S: Final = 0.5
_NAMES_MAX: Final = 5
_NO_EPOCH: Final = -1


class OldCopyError(CoordinationError):
    """The coordinator's data is older than what this broker has seen of it."""


class OldEpoch(NamedTuple):
    """A partition whose log holds a leader epoch that the tree has not reached."""

    topic: str
    partition: int
    state: LeaderAndIsr | None
    """The state in the tree."""
    log_epoch: int

    def __str__(self) -> str:
        in_tree = "none" if self.state is None else self.state.leader_epoch
        return f"{self.topic}-{self.partition} (the log has {self.log_epoch}, it has {in_tree})"


def old_epochs(topics: Mapping[str, Topic], logs: LogDirectory) -> list[OldEpoch]:
    """Every partition whose state in the tree is older than its log, with the same topic id."""
    found = []
    for (name, index), log in sorted(logs.logs.items()):
        topic = topics.get(name)
        if topic is None or topic.topic_id != logs.topic_ids[name, index]:
            continue
        state = topic.states.get(index)
        in_tree = _NO_EPOCH if state is None else state.leader_epoch
        if in_tree < log.leader_epochs.latest_epoch:
            found.append(OldEpoch(name, index, state, log.leader_epochs.latest_epoch))
    return found


def check_leader_epochs(topics: Mapping[str, Topic], logs: LogDirectory) -> None:
    """Raises `OldCopyError` if a log holds a leader epoch that the tree has not reached."""
    found = old_epochs(topics, logs)
    if found:
        names = ", ".join(map(str, found[:_NAMES_MAX]))
        raise OldCopyError(
            f"the coordinator's data is an old copy: its leader epochs are behind those in the logs of "
            f"{logs.path}: {names}; {len(found)} in all; {REMEDY} {logs.path}"
        )


async def check_epochs_within(registry: TopicRegistry, logs: LogDirectory) -> None:
    """Does what `check_leader_epochs` does, allowing time for a coordinator's server that lags.

    Raises `CoordinationError`.
    """
    for _ in range(LAG_CHECKS_MAX):
        if not old_epochs(registry.topics, logs):
            return
        await asyncio.sleep(LAG_PAUSE_S)
        await registry.load()
    check_leader_epochs(registry.topics, logs)
