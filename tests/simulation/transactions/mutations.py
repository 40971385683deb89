"""The broker with one rule of transactions taken out of it, to see that histories miss it.

Those of the coordinator's core are the mutants of its exploration (`tests/coordinators/transactions/exploration/mutants.py`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, Final
from unittest.mock import patch

from echoless.broker.handlers import txn_offset_commit
from echoless.broker.partitions.core.membership import Membership
from echoless.broker.partitions.partition import Partition
from echoless.broker.records import markers, transactional
from echoless.broker.records.markers import MarkerWriter
from echoless.coordinators.effects import SetTimer
from echoless.coordinators.transactions import transactional_id
from echoless.protocol.marker_decision import decide_marker
from echoless.storage import log
from echoless.storage.log import Log
from tests.coordinators.transactions.exploration.mutants import MUTANTS
from tests.simulation import virtual_loop

Patches = list[Any]


def _leaders_do_not_ask() -> Patches:
    """A batch opens a transaction without its coordinator."""
    return [
        patch.object(transactional, "question_about", lambda *_: None),
        patch.object(txn_offset_commit, "question_about", lambda *_: None),
    ]


def _answers_outlive_markers() -> Patches:
    """The word of a coordinator counts, whatever has come since it was asked."""
    return [patch.object(transactional, "judge", lambda *_: Membership.APPEND)]


def _late_markers_are_accepted() -> Patches:
    """A marker ends whatever is open, whichever coordinator sends it."""

    def decide(entry: Any, _last: Any, header: Any, marker: Any) -> Any:
        return decide_marker(entry, None, header, marker)

    return [
        patch.object(log, "decide_marker", decide),
        patch.object(MarkerWriter, "_is_outdated", lambda *_: False),
    ]


def _refused_timeouts_come_at_once() -> Patches:
    """A timeout whose record was refused is tried again in the same moment."""
    not_stored = transactional_id._not_stored

    def eager(state: Any, *others: Any) -> Any:
        changed, effects = not_stored(state, *others)
        return changed, [
            one._replace(at_ms=state.deadline_ms) if isinstance(one, SetTimer) else one
            for one in effects
        ]

    return [
        patch.object(transactional_id, "_not_stored", eager),
        patch.object(virtual_loop, "STEPS_AT_ONE_TIME_MAX", 2000),  # so that it is found soon
    ]


def _markers_are_answered_early() -> Patches:
    """A marker counts as soon as it is in the leader's log."""
    return [patch.object(markers, "is_unacknowledged", lambda *_: False)]


def _connections_have_no_order() -> Patches:
    """A delayed request of the first generation counts."""
    return [patch.object(transactional_id, "is_overtaken", lambda *_: False)]


def _readers_see_open_transactions() -> Patches:
    """The last stable offset is the high watermark."""
    return [
        patch.object(Partition, "last_stable_offset", property(lambda self: self.high_watermark))
    ]


def _aborted_ranges_are_left_out() -> Patches:
    """A fetch names no aborted transaction."""
    return [patch.object(Log, "aborted_in", lambda *_: [])]


OWN: Final[dict[str, Callable[[], Patches]]] = {
    "leaders do not ask": _leaders_do_not_ask,
    "answers outlive markers": _answers_outlive_markers,
    "late markers are accepted": _late_markers_are_accepted,
    "refused timeouts come at once": _refused_timeouts_come_at_once,
    "markers are answered early": _markers_are_answered_early,
    "connections have no order": _connections_have_no_order,
    "readers see open transactions": _readers_see_open_transactions,
    "aborted ranges are left out": _aborted_ranges_are_left_out,
}
MUTATIONS: Final = {**OWN, **MUTANTS}


@contextlib.contextmanager
def apply(name: str) -> Iterator[None]:
    """Plays with the mutation in place."""
    with contextlib.ExitStack() as stack:
        for one in MUTATIONS[name]():
            stack.enter_context(one)
        yield
