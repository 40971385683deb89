"""Differences from Apache Kafka 4.2 in answers of the consumer protocol, by name; each has a row in docs/differences.md. Pure."""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from typing import Any, Final

from tests.oracle.consumers.chooser import JOINS, Step

JOINS_AGAIN: Final = "joins again"
"""A member joins again with its id: to Kafka it has what it had, and the epoch stays; a static one is refused with 111."""
PREVIOUS_EPOCH: Final = "previous epoch"
"""A heartbeat of the previous epoch: Kafka goes on with it, or fences; Echoless answers what the member has."""
OTHER_PARTITIONS: Final = "other partitions"
"""`uniform` chooses others; no member is to have more than the one with most in Kafka, or less than that with least."""
OTHER_SHARES: Final = "other shares"
"""Members with different subscriptions: Kafka tries chains of moves to even their shares out, Echoless single ones."""
EARLIER_EPOCH: Final = "commit of an earlier epoch"
"""KIP-1251: Kafka before 4.3 refuses it."""
TOLD_AGAIN: Final = "told again"
"""A heartbeat that names fewer partitions than the member has."""
EXPRESSION_FIRST: Final = "expression first"
"""Echoless refuses a regular expression before it looks at the group."""
REFUSED_ROWS: Final = "rows of a refused fetch"
"""OffsetFetch of a stale epoch: Echoless names the partitions, so that librdkafka asks for them again."""
INVALID_REGEX: Final = 128
STALE_MEMBER_EPOCH: Final = 113
NAMES: Final = (
    JOINS_AGAIN,
    PREVIOUS_EPOCH,
    OTHER_PARTITIONS,
    OTHER_SHARES,
    EARLIER_EPOCH,
    TOLD_AGAIN,
    EXPRESSION_FIRST,
    REFUSED_ROWS,
)
ENDS: Final = frozenset(NAMES) - {TOLD_AGAIN, EXPRESSION_FIRST, REFUSED_ROWS}
"""After these the two groups go separate ways: the history ends."""


def explain(
    step: Step, kafka: Any, echoless: Any, described: tuple[Any, Any], before: list[Any]
) -> str:
    """Returns the name of the difference between two answers, or two descriptions after them; "" without one.

    `before`: the members that were described before the step.
    """
    theirs, ours = described
    codes = kafka.get("error_code"), echoless.get("error_code")
    if codes[1] == INVALID_REGEX:
        return EXPRESSION_FIRST
    epochs = {one["member_id"]: one["member_epoch"] for one in before}
    sent, known = step.values.get("member_epoch"), epochs.get(step.values.get("member_id"))
    if known is not None and sent == JOINS and codes in {(0, 0), (111, 0)}:
        return JOINS_AGAIN
    if known is not None and sent is not None and JOINS < sent < known and codes[1] == 0:
        return PREVIOUS_EPOCH
    if step.api == "offset_fetch":
        return REFUSED_ROWS if all(map(_is_refused, kafka["groups"], echoless["groups"])) else ""
    if step.api == "offset_commit":
        return EARLIER_EPOCH if (_codes(kafka), _codes(echoless)) == ({113}, {0}) else ""
    if codes != (0, 0) or not _differs_in_partitions(kafka, echoless, known, ours):
        return ""
    if theirs == ours:
        return TOLD_AGAIN if kafka["assignment"] is None else ""
    if _assignor(theirs) == "uniform":
        return _explain_shares(theirs["groups"][0]["members"], ours["groups"][0]["members"])
    return ""


def _is_refused(theirs: Any, ours: Any) -> bool:
    """Whether both refuse the group alike, and only Echoless has rows."""
    codes = {STALE_MEMBER_EPOCH}
    return {theirs["error_code"], ours["error_code"], *_codes(ours)} == codes and not _codes(theirs)


def _differs_in_partitions(kafka: Any, echoless: Any, known: int | None, ours: Any) -> bool:
    """Whether nothing else differs than what the member has, and so whether it is in the newest epoch already."""
    changing = {"assignment", "member_epoch"}
    epochs = {kafka["member_epoch"], echoless["member_epoch"]}
    return _without(kafka, changing) == _without(echoless, changing) and (
        len(epochs) == 1 or epochs == {known, ours["groups"][0]["assignment_epoch"]}
    )


def _explain_shares(theirs: list[Any], ours: list[Any]) -> str:
    """The name of the difference between what members are to have; their number has to be the same."""
    kafka, echoless = _sizes(theirs), _sizes(ours)
    if sum(kafka) != sum(echoless):
        return ""
    if max(echoless) <= max(kafka) and min(echoless) >= min(kafka):
        return OTHER_PARTITIONS
    subscriptions = {tuple(one["subscribed_topic_names"]) for one in ours}
    return OTHER_SHARES if len(subscriptions) > 1 else ""


def _without(answer: Any, names: AbstractSet[str]) -> Any:
    return {key: value for key, value in answer.items() if key not in names}


def _codes(answer: Any) -> set[int]:
    return {row["error_code"] for topic in answer["topics"] for row in topic["partitions"]}


def _assignor(description: Any) -> str:
    return str(description["groups"][0]["assignor_name"])


def _sizes(members: list[Any]) -> list[int]:
    """How many partitions each is to have."""
    return [len(one["target_assignment"]) for one in members]
