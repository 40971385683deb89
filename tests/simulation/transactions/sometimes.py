"""Events that have to happen now and then in many histories: else these prove nothing about them ("sometimes" properties).

A run that is long enough fails if one of these never occurred. What cannot occur in random histories is named with the reason,
and where it is shown instead.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

LONG_ENOUGH: Final = 2000
"""Histories in which everything is expected."""

HAZARDS: Final = (
    "H1 ghost_end",
    "H2 ghost_produce: a batch comes after the end of its transaction",
    "H3 verified_then_aborted",
    "H4 ghost_marker",
    "H5 a prepare record is cut off",
    "H6 a marker is cut off",
    "H7 coordinator_pause_resume",
    "end_txn repeated at another coordinator",  # H8
    "init_producer_id repeated at another coordinator",
    "add_partitions_to_txn repeated at another coordinator",
    "H9 a commit comes after the timeout",
    "H10 init_races_commit",
    "H11 topic_reborn",
    "H12 partition_leaderless",
    "H13 min_isr",
    "H14 epoch_edge",
    "H16 restart in mid-transaction",
    "H18 interleaved transactions",
    "H19 a fetch cuts a transaction that is aborted later",
    "H20 both generations in one transaction",
    "H21 an empty abort",
    "add_partitions_to_txn repeated at the same coordinator",  # H23
)
"""Hazards of the specification, met at random."""

ELSEWHERE: Final[Mapping[str, str]] = {
    "H15": "an id expires by a check every hour, and histories last minutes: tests/simulation/hazards/transactions.py",
    "H17": "records of the topics are never deleted, as the checker compares all: tests/simulation/hazards/transactions.py",
    "H2, held up by a missing marker": "a coordinator takes no transaction for ended whose marker can still be lost: "
    "tests/broker/partitions/core/test_membership.py",
    "H24": "the group's coordinator is notified in the step that commits the marker, unless it has many records to look at: "
    "tests/broker/state_topics/test_appends.py",
    "H22": "disks lose and fail, but do not change bytes: tests/broker/transactions/test_service.py",
    "DEAD": "as H15",
}
"""Names of events that cannot occur, and why."""

TRANSITIONS: Final = (
    "unknown -> EMPTY",
    "EMPTY -> EMPTY",
    "EMPTY -> ONGOING",
    "EMPTY -> PREPARE_ABORT",
    "ONGOING -> ONGOING",
    "ONGOING -> PREPARE_COMMIT",
    "ONGOING -> PREPARE_ABORT",
    "PREPARE_COMMIT -> COMPLETE_COMMIT",
    "PREPARE_ABORT -> COMPLETE_ABORT",
    "COMPLETE_COMMIT -> EMPTY",
    "COMPLETE_COMMIT -> ONGOING",
    "COMPLETE_COMMIT -> PREPARE_ABORT",
    "COMPLETE_ABORT -> EMPTY",
    "COMPLETE_ABORT -> ONGOING",
    "COMPLETE_ABORT -> PREPARE_ABORT",
    "ended COMMITTED",
    "ended ABORTED",
    "ended TIMED_OUT",
    "ended FENCED",
)
"""Steps of the state machine, as they are stored."""

CODES: Final[Mapping[str, tuple[int, ...]]] = {
    "init_producer_id": (0, 14, 15, 16, 51, 90),
    "add_partitions_to_txn": (0, 14, 15, 16, 49, 51, 90),
    "add_offsets_to_txn": (0, 51, 90),
    "txn_offset_commit": (0, 16, 47),
    "end_txn": (0, 14, 15, 16, 48, 49, 51, 90, 120),
    "produce": (0, 6, 19, 47, 51, 120),
    "fetch": (0, 6),
    "find_coordinator": (0, 15),
}
"""Answers, by API."""

EXPECTED: Final = (
    *HAZARDS,
    *TRANSITIONS,
    *(f"{api} answered {code}" for api, codes in CODES.items() for code in codes),
)


def missing(counts: Mapping[str, int]) -> list[str]:
    """The names of events that were expected and have not happened."""
    return [name for name in EXPECTED if not counts.get(name)]
