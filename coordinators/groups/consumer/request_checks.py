"""Checks of a ConsumerGroupHeartbeat that do not depend on its group: they are made before it waits for anything."""

from __future__ import annotations

from typing import NamedTuple

from echoless.coordinators.groups.config import GroupCoordinatorConfig
from echoless.coordinators.groups.consumer.assignors import ASSIGNORS
from echoless.coordinators.groups.consumer.requests import (
    JOINS,
    LEAVES_FOR_A_WHILE,
    UNCHANGED,
    ConsumerHeartbeat,
    ConsumerHeartbeatAnswer,
)
from echoless.coordinators.groups.log_names import shown
from echoless.protocol.errors import ErrorCode


class Refused(NamedTuple):
    code: ErrorCode
    message: str | None = None

    @property
    def answer(self) -> ConsumerHeartbeatAnswer:
        return ConsumerHeartbeatAnswer(self.code, self.message)


def flaw(request: ConsumerHeartbeat, config: GroupCoordinatorConfig) -> Refused | None:
    """The reason to refuse the request, whatever the group."""
    problem = _field_flaw(request, config)
    if problem is not None:
        return Refused(ErrorCode.INVALID_REQUEST, problem)
    if request.assignor is not None and request.assignor not in ASSIGNORS:
        known = ", ".join(ASSIGNORS)
        message = f"ServerAssignor {shown(request.assignor)} is not supported; there is {known}."
        return Refused(ErrorCode.UNSUPPORTED_ASSIGNOR, message)
    return None


def _field_flaw(request: ConsumerHeartbeat, config: GroupCoordinatorConfig) -> str | None:
    epoch = request.member_epoch
    if not request.member_id and (request.makes_member_id or epoch != JOINS):
        return "MemberId can't be empty."
    if not request.group_id:
        return "GroupId can't be empty."
    if request.instance_id == "":
        return "InstanceId can't be empty."
    if request.rack_id == "":
        return "RackId can't be empty."
    if epoch == LEAVES_FOR_A_WHILE and request.instance_id is None:
        return "InstanceId can't be null."
    if epoch < LEAVES_FOR_A_WHILE:
        return f"MemberEpoch is {epoch}, but must be greater than or equal to -2."
    too_long = _length_flaw(request, config)
    return _join_flaw(request) if too_long is None and epoch == JOINS else too_long


def _length_flaw(request: ConsumerHeartbeat, config: GroupCoordinatorConfig) -> str | None:
    names = [request.member_id, request.instance_id or "", request.rack_id or ""]
    names += [request.topic_regex or "", request.client_id]
    topics = request.topic_names or ()
    if max(map(len, names)) > config.name_bytes_max:
        return f"A name has at most {config.name_bytes_max} characters."
    if len(topics) > config.member_topics_max or sum(map(len, topics)) > config.member_bytes_max:
        return f"A member subscribes to {config.member_topics_max} names of topics at most."
    if request.rebalance_timeout_ms < UNCHANGED:
        return "RebalanceTimeoutMs can't be negative."
    return None


def _join_flaw(request: ConsumerHeartbeat) -> str | None:
    if request.rebalance_timeout_ms == UNCHANGED:
        return "RebalanceTimeoutMs must be provided in first request."
    if request.owned is None or request.owned:
        return "TopicPartitions must be empty when (re-)joining."
    if request.topic_names is None and request.topic_regex is None:
        return "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining."
    return None
