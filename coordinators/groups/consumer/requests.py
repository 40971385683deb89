"""The requests of the consumer protocol, and their answers: one value for all versions of an API."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from echoless.protocol.errors import ErrorCode
from echoless.protocol.state_records.consumer_group_values import MemberValue, TopicIdPartition

JOINS = 0
"""The epoch of a member that joins."""
LEAVES = -1
LEAVES_FOR_A_WHILE = -2
"""The epoch of a static member that will come back."""
UNCHANGED = -1
"""A rebalance timeout that is not given."""

MayDescribe = Callable[[str], bool] | None
"""Whether the client may describe a topic; None: all of them."""


class ConsumerHeartbeat(NamedTuple):
    """Fields that are None, or a timeout of `UNCHANGED`, are as in an earlier heartbeat."""

    group_id: str
    member_id: str
    member_epoch: int
    instance_id: str | None
    rack_id: str | None
    rebalance_timeout_ms: int
    topic_names: tuple[str, ...] | None
    topic_regex: str | None
    """Valid; "" for none."""
    assignor: str | None
    owned: frozenset[TopicIdPartition] | None
    client_id: str
    client_host: str
    uuid: str
    """A fresh random UUID: the id of a new member that has none."""
    may_describe: MayDescribe = None
    makes_member_id: bool = True
    """From version 1 on the client makes its id."""
    sharer: str = ""
    """Whoever the member counts towards (`broker/network/sharer.py`); empty: no one."""


class ConsumerHeartbeatAnswer(NamedTuple):
    error_code: ErrorCode
    message: str | None = None
    member_id: str | None = None
    member_epoch: int = 0
    heartbeat_interval_ms: int = 0
    assignment: frozenset[TopicIdPartition] | None = None
    """None: unchanged."""


class ConsumerDescribe(NamedTuple):
    group_id: str


class DescribedConsumer(NamedTuple):
    member_id: str
    member_epoch: int
    value: MemberValue
    assigned: frozenset[TopicIdPartition]
    target: frozenset[TopicIdPartition]


class ConsumerDescribeAnswer(NamedTuple):
    error_code: ErrorCode
    message: str | None = None
    state: str = ""
    epoch: int = 0
    target_epoch: int = 0
    assignor: str = ""
    members: tuple[DescribedConsumer, ...] = ()
