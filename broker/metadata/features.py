"""The level of `echoless.version` that is in force in the cluster, kept in the node `/feature` as Kafka keeps its features.

The first broker of a new cluster stores the newest level. In an older cluster there is no such node, which is level 0, until the controller finds that all brokers are new, or a client asks for it
(`echoless features upgrade`). Every broker follows the node. It is never lowered: what has been stored since may be of
the higher level.
"""

from __future__ import annotations

import contextlib
import json
import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from echoless.broker.config import feature_levels
from echoless.broker.config.feature_levels import (
    FEATURE,
    GROUP_FEATURE,
    LEVEL_MAX,
    LEVEL_MIN,
    TRANSACTION_FEATURE,
    check_topic,
    has_internal_topics,
    supported_level,
)
from echoless.broker.metadata.node_data import BROKERS, NodeDataError
from echoless.broker.metadata.registration import BrokerInfo
from echoless.broker.metadata.topic import NO_NODE, Topic
from echoless.broker.tree.lost_replies import commit
from echoless.broker.tree.node_json import decode_node_json
from echoless.broker.tree.node_tree import (
    Cancel,
    Check,
    CoordinationError,
    Create,
    MultiFailedError,
    NodeTree,
    SetData,
    ensure_paths,
)
from echoless.broker.tree.refresher import Refresher
from echoless.protocol.api_versions import Feature

logger: Final = logging.getLogger(__name__)

FEATURES: Final = "/feature"
_VERSION: Final = 2
_ENABLED: Final = 1


def encode_level(level: int) -> bytes:
    """The data of `FEATURES`: Kafka's version 2."""
    fields = {"version": _VERSION, "status": _ENABLED, "features": {FEATURE: level}}
    return json.dumps(fields, separators=(",", ":")).encode()


def decode_level(data: bytes) -> int:
    """Raises `NodeDataError`. Kafka's own features are ignored."""
    try:
        return int(decode_node_json(data)["features"].get(FEATURE, LEVEL_MIN))
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise NodeDataError(
            f"the node {FEATURES} holds what cannot be read: {data!r}; a newer version may have written it"
        ) from error


def least_supported(brokers: Iterable[BrokerInfo]) -> int:
    """The newest level that all of these brokers support."""
    return min((supported_level(one.features) for one in brokers), default=LEVEL_MIN)


class Features:
    """The level in force, as this broker knows it. Belongs to the event loop."""

    def __init__(self, tree: NodeTree, topics: Mapping[str, Topic], *, is_shared: bool) -> None:
        """`is_shared`: whether other brokers use the tree; one alone is at the newest level."""
        self.level = LEVEL_MIN if is_shared else LEVEL_MAX
        self._tree = tree
        self._topics = topics
        self._is_shared = is_shared
        self._node_version = NO_NODE
        self._cancel: Cancel = lambda: None
        self._refresher = Refresher("features", self._follow)

    @property
    def epoch(self) -> int:
        """The number of changes so far: a client that has seen a higher one ignores this broker's."""
        return max(self._node_version, 0)

    async def start(self) -> None:
        """Reads the level, and follows it. Raises `CoordinationError`, also if this release is too old for it."""
        if not self._is_shared:
            return
        self._cancel = await self._tree.watch(FEATURES, lambda _: self._refresher.ask())
        await self.refresh()
        if self._node_version == NO_NODE and await self._is_new_cluster():
            with contextlib.suppress(MultiFailedError):  # another broker was first
                await self.raise_to(LEVEL_MAX)
        if self.level > LEVEL_MAX:
            raise CoordinationError(
                f"the cluster is at level {self.level} of the feature {FEATURE}, raised by a newer version; this one "
                f"supports at most {LEVEL_MAX}: start a broker of the newer version"
            )
        self._refresher.start()

    async def close(self) -> None:
        """Stops following."""
        self._cancel()
        await self._refresher.close()

    async def refresh(self) -> None:
        """Reads the level that is in force now. Raises `CoordinationError`."""
        node = (await self._tree.read_many([FEATURES]))[0]
        if node is not None and node.version > self._node_version:
            self._node_version, self.level = node.version, decode_level(node.data)

    async def raise_to(self, level: int, checks: Sequence[Check] = ()) -> None:
        """Stores a higher level, if `checks` hold and no one has changed it. Raises `CoordinationError`."""
        data = encode_level(level)
        if self._node_version == NO_NODE:
            operation: Create | SetData = Create(FEATURES, data)
        else:
            operation = SetData(FEATURES, data, self._node_version)
        try:
            await commit(self._tree, [*checks, operation])
        finally:
            await self.refresh()
        logger.info("the feature %s is at level %d from now on", FEATURE, level)

    def check_topic(self, name: str, overrides: Mapping[str, str]) -> None:
        """Raises `KafkaError` for what a topic cannot have at this level (`feature_levels.py`)."""
        check_topic(self.level, self._topics, name, overrides)

    @property
    def transaction_version(self) -> int:
        """The generation of transactions that all brokers serve; 0 for none."""
        return feature_levels.transaction_version(self.level)

    def rows(self) -> tuple[Feature, ...]:
        """The features that ApiVersions announces."""
        groups = int(has_internal_topics(self.level, self._topics))
        newest = feature_levels.TRANSACTION_VERSION_MAX
        return (
            Feature(FEATURE, LEVEL_MIN, LEVEL_MAX, self.level),
            Feature(GROUP_FEATURE, 0, 1, groups),
            Feature(TRANSACTION_FEATURE, 0, newest, self.transaction_version),
        )

    async def _is_new_cluster(self) -> bool:
        """Whether nothing in the tree can be of an older release."""
        await ensure_paths(self._tree, [BROKERS])
        return not self._topics and not await self._tree.children(BROKERS)

    async def _follow(self) -> None:
        before = self.level
        await self.refresh()
        if self.level > LEVEL_MAX:
            logger.error(
                "the feature %s is at level %d, this broker supports at most %d and is too old for its cluster: what newer "
                "brokers store it may not serve; start a newer version",
                FEATURE,
                self.level,
                LEVEL_MAX,
            )
        elif self.level != before:
            logger.info("the feature %s is at level %d", FEATURE, self.level)
