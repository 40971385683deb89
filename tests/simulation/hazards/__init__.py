"""The nineteen hazards of replication, each a scenario: what has bitten real systems, played on purpose.

Each scenario is a function that answers with the promises that were broken: none, unless something
has been taken out of the code under test (`mutations.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from tests.simulation.hazards import (
    compaction,
    failover,
    groups,
    isolation,
    lifetimes,
    operators,
    transactions,
)

Scenario = Callable[[], list[str]]

HAZARDS: Final[dict[int, tuple[Scenario, ...]]] = {
    1: (failover.two_quick_failovers,),
    2: (isolation.a_leader_alone_shrinks,),
    3: (isolation.a_paused_leader_wakes,),
    4: (isolation.an_old_controller_writes_late,),
    5: (failover.a_follower_below_the_epoch_start, failover.a_newcomer_falls_behind_again),
    6: (failover.the_last_replica_loses_power,),
    7: (failover.a_checkpoint_above_the_log,),
    8: (
        failover.a_repeat_above_the_high_watermark,
        failover.an_old_repeat_above_the_high_watermark,
    ),
    9: (failover.a_retry_before_the_original, failover.a_batch_overtakes_another),
    10: (lifetimes.a_fresh_replica_leads,),
    11: (lifetimes.clocks_differ_by_hours,),
    12: (lifetimes.a_topic_comes_again,),
    13: (lifetimes.two_brokers_with_one_id, lifetimes.two_brokers_on_one_disk),
    14: (lifetimes.the_log_start_overtakes_a_follower, lifetimes.the_log_start_hides_an_epoch),
    15: (isolation.the_session_ends_before_the_write,),
    16: (isolation.messages_come_minutes_late, isolation.a_fetch_of_an_earlier_life),
    17: (operators.an_old_copy_of_the_tree, operators.a_copy_that_another_broker_has_used),
    18: (operators.a_clock_is_days_ahead,),
    19: (failover.a_leader_leads_on, failover.a_leader_leads_again, failover.a_doubt_passes),
}
"""Numbered; `docs/replication.md` ("What can go wrong") explains each."""

GROUP_HAZARDS: Final[dict[str, Scenario]] = {
    "H1": groups.a_zombie_coordinator_wakes,
    "H2": groups.a_commit_that_no_replica_has,
    "H3": groups.a_generation_is_cut_short,
    "H4": groups.a_commit_comes_after_the_next_generation,
    "H5": groups.an_old_heartbeat_acknowledges_a_revocation,
    "H6": groups.an_old_timer_strikes,
    "H7": groups.a_load_reads_more_than_is_committed,
    "H8": compaction.an_end_is_cut_off_after_cleaning,
    "H9": compaction.a_hole_hides_the_beginning_of_an_epoch,
    "H10": compaction.a_fresh_replica_of_a_cleaned_log_leads,
    "H11": compaction.segments_end_in_holes,
    "H12": groups.a_copier_resumes_twice,
}
"""Those of consumer groups and of compaction, by the names that the code gives them."""

TRANSACTION_HAZARDS: Final[dict[str, Scenario]] = {
    "H1": transactions.a_late_end_after_the_coordinator_has_moved_twice,
    "H5": transactions.a_decision_that_no_replica_has,
    "H6": transactions.a_marker_is_lost_with_its_leader,
    "H7": transactions.a_coordinator_wakes_with_old_markers,
    "H13": transactions.too_few_replicas,
    "H15": transactions.an_id_expires,
    "H17": transactions.records_are_deleted_under_a_transaction,
}
"""Those of transactions that histories meet seldom or not at all (`tests/simulation/transactions/sometimes.py`)."""
