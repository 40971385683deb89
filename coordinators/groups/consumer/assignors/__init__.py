"""Server-side assignors: members and topics in, a target for each member out. Deterministic.

A member is given each of its partitions by one assignor alone, so a target never has two members for a partition.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from coordinators.groups.consumer.assignors.inputs import AssignedTopic, Subscriber, Target
from coordinators.groups.consumer.assignors.range_ import assign_ranges
from coordinators.groups.consumer.assignors.uniform import assign_uniformly

Assignor = Callable[[Sequence[Subscriber], Sequence[AssignedTopic]], Target]

ASSIGNORS: Final[Mapping[str, Assignor]] = {"uniform": assign_uniformly, "range": assign_ranges}
"""By the names that clients give; the first is for members that give none."""
DEFAULT_ASSIGNOR: Final = next(iter(ASSIGNORS))
