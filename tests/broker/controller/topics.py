"""Topics for tests of decisions: `topic({0: (1, 2, 3)}, {0: state(1, 5, (1, 2))})`."""

from __future__ import annotations

import uuid
from collections.abc import Mapping

from echoless.broker.metadata.node_data import LeaderAndIsr, Reassignment
from echoless.broker.metadata.topic import Topic


def state(leader: int, leader_epoch: int, isr: tuple[int, ...]) -> LeaderAndIsr:
    """A state as read from a node of version 7."""
    return LeaderAndIsr(leader=leader, leader_epoch=leader_epoch, isr=isr, node_version=7)


def topic(
    assignment: Mapping[int, tuple[int, ...]],
    states: Mapping[int, LeaderAndIsr],
    reassignments: Mapping[int, Reassignment] | None = None,
    name: str = "t",
) -> Topic:
    """A topic without configuration."""
    return Topic(
        name=name,
        topic_id=uuid.UUID(int=1),
        assignment=assignment,
        states=states,
        config={},
        reassignments=reassignments or {},
    )
