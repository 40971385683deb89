"""Server-side assignors: members and topics in, a target for each member out. Deterministic.

A member is given each of its partitions by one assignor alone, so a target never has two members for a partition.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from echoless.coordinators.groups.consumer.assignors.inputs import (
    AssignedTopic,
    Steps,
    Subscriber,
    Target,
)
from echoless.coordinators.groups.consumer.assignors.range_ import assign_ranges
from echoless.coordinators.groups.consumer.assignors.uniform import assign_uniformly

Assignor = Callable[[Sequence[Subscriber], Sequence[AssignedTopic]], Steps]

ASSIGNORS: Final[Mapping[str, Assignor]] = {"uniform": assign_uniformly, "range": assign_ranges}
"""The assignors by the names that clients give; the first is for members that give none."""
DEFAULT_ASSIGNOR: Final = next(iter(ASSIGNORS))


def assigned_at_once(
    name: str, members: Sequence[Subscriber], topics: Sequence[AssignedTopic]
) -> Target:
    """Take all steps of an assignor without a pause."""
    steps = ASSIGNORS[name](members, topics)
    try:
        while True:
            next(steps)
    except StopIteration as end:
        target: Target = end.value
        return target
