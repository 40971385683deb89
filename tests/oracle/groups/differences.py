"""Differences from Apache Kafka 3.9 in answers about groups, by name; each has a row in docs/differences.md. Pure."""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from typing import Final

from tests.oracle.groups.chooser import (
    ILLEGAL_GENERATION,
    REBALANCE_IN_PROGRESS,
    UNKNOWN_MEMBER_ID,
)
from tests.oracle.groups.step import Request
from tests.oracle.messages import Plain

ANOTHER_LEADER: Final = "another leader"
"""The leader has gone: Kafka takes the first of a hash table, Echoless the member that joined first."""
GENERATION_OF_NO_GROUP: Final = "generation of no group"
GENERATION_OF_OTHERS: Final = "generation of others"
"""A member in its first JoinGroup is named with the generation of the others: Kafka accepts that."""
SYNC_OF_ONE_THAT_LEFT: Final = "sync of one that left"
"""The SyncGroup of a member that leaves meanwhile: Kafka never answers it."""
NEW_STATIC_MEMBER_GONE: Final = "new static member gone"
"""Kafka removes a static member in its first JoinGroup after a session timeout if another process took its place."""
SUBSCRIBED_MEANWHILE: Final = "subscribed meanwhile"
"""OffsetDelete during a rebalance: Echoless may count who joins already, Kafka the last generation."""
FIRST_MEMBER_REFUSED: Final = "first member refused"
"""A JoinGroup that is refused leaves an empty group in Kafka."""
PENDING_MEMBER_KEPT: Final = "pending member kept"
"""OffsetDelete ends a group without offsets in Kafka, also one with a member that has its id and is about to join."""
NAMES: Final = (
    FIRST_MEMBER_REFUSED,
    PENDING_MEMBER_KEPT,
    ANOTHER_LEADER,
    GENERATION_OF_NO_GROUP,
    GENERATION_OF_OTHERS,
    SYNC_OF_ONE_THAT_LEFT,
    NEW_STATIC_MEMBER_GONE,
    SUBSCRIBED_MEANWHILE,
)
ENDS: Final = frozenset(NAMES) - {GENERATION_OF_NO_GROUP}
"""After these the two groups go separate ways: the history ends."""


def explain(
    step: Request, kafka: Plain, echoless: Plain, *, state: str, first_joins: AbstractSet[str]
) -> str:
    """Return the name of the difference; "" without one. `echoless` is None while only Kafka has answered.

    `state` is that of the group, `first_joins` are the members that wait in their first JoinGroup.
    """
    if step.api == "offset_delete" and echoless is not None:
        has_rows = _codes(kafka) | _codes(echoless) <= {0, 3, 86}
        is_known = state in {"PreparingRebalance", "Stable"}
        return SUBSCRIBED_MEANWHILE if has_rows and is_known else ""
    if step.api == "join_group":
        return _explain_join(step, kafka, echoless)
    if step.api == "offset_commit" and step.version >= 9 and echoless is not None:
        codes = [_codes(answer) for answer in (kafka, echoless)]
        if codes[0] <= {22, 12, 3} and codes[1] <= {69, 12, 3}:
            return GENERATION_OF_NO_GROUP
    if step.values.get("member_id") in first_joins and echoless is not None:
        return _explain_first_join(step, kafka, echoless)
    return ""


def explain_only_ours(step: Request, echoless: Plain, last: Request | None) -> str:
    """Return the name of the reason why only Echoless has answered a step; "" without one. `last` is the newest step."""
    if last is not None and (step.api, last.api) == ("sync_group", "leave_group"):
        return SYNC_OF_ONE_THAT_LEFT if echoless["error_code"] == UNKNOWN_MEMBER_ID else ""
    return ""


def explain_states(step: Request | None, kafka: str, echoless: str) -> str:
    """Return the name of the reason why the group's states differ after a step; "" without one."""
    if step is None:
        return ""
    if (step.api, kafka, echoless) == ("join_group", "Empty", "Dead"):
        return FIRST_MEMBER_REFUSED
    if (step.api, kafka, echoless) == ("offset_delete", "Dead", "Empty"):
        return PENDING_MEMBER_KEPT
    return ""


def _explain_first_join(step: Request, kafka: Plain, echoless: Plain) -> str:
    if step.api == "offset_commit":
        is_refused = ILLEGAL_GENERATION in _codes(echoless) - _codes(kafka)
    else:
        codes = kafka["error_code"], echoless["error_code"]
        is_refused = codes == (REBALANCE_IN_PROGRESS, ILLEGAL_GENERATION)
    return GENERATION_OF_OTHERS if is_refused else ""


def _explain_join(step: Request, kafka: Plain, echoless: Plain) -> str:
    is_new = step.values["member_id"] == "" and step.values["group_instance_id"] is not None
    if kafka["error_code"] == 25 and is_new:
        return NEW_STATIC_MEMBER_GONE
    if echoless is None:
        return ""
    same = ("error_code", "generation_id", "protocol_name", "member_id")
    if kafka["leader"] != echoless["leader"] and all(kafka[one] == echoless[one] for one in same):
        return ANOTHER_LEADER
    return ""


def _codes(answer: Plain) -> set[int]:
    return {row["error_code"] for topic in answer["topics"] for row in topic["partitions"]}
