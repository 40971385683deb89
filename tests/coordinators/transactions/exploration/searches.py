"""The searches that are made: small ones by the suite, large ones by `make proof`."""

from __future__ import annotations

from typing import Final

from echoless.coordinators.transactions.state import TransactionalIdState
from echoless.protocol.state_records.transaction_records import TransactionStatus, TransactionValue
from tests.coordinators.transactions.exploration.search import Bounds
from tests.coordinators.transactions.exploration.world import TIMEOUT_MS, GivenIdentity, IdWorld


def near_the_end(producer_id: int, epoch: int = 32_765) -> IdWorld:
    """An id whose session has the last epoch but one, so that producer ids rotate within a few requests."""
    value = TransactionValue(producer_id, epoch, TIMEOUT_MS, TransactionStatus.EMPTY)
    given = (GivenIdentity(producer_id, epoch, 1),)
    return IdWorld(TransactionalIdState(value), value, given=given, session=1)


def in_two_phases(producer_id: int) -> IdWorld:
    """An id with a session whose transactions have no timeout."""
    value = TransactionValue(
        *(producer_id, 3, 2**31 - 1, TransactionStatus.EMPTY), is_two_phase=True
    )
    given = (GivenIdentity(producer_id, 3, 1),)
    return IdWorld(TransactionalIdState(value), value, given=given, session=1)


_TWO_PHASES: Final = (in_two_phases(5), in_two_phases(6))
_NEAR_THE_END: Final = (near_the_end(5), near_the_end(6))
SMALL: Final = {
    "second generation": Bounds(3, 1),
    "first generation": Bounds(3, 1, version=0),
    "requests are held": Bounds(3, 0, hold_ms=100),
    "near the last epoch": Bounds(3, 0, starts=_NEAR_THE_END),
    "near the last epoch, first generation": Bounds(3, 0, version=0, starts=_NEAR_THE_END),
    "two phases": Bounds(3, 0, is_two_phase=True, starts=_TWO_PHASES),
    "two phases, a fault": Bounds(2, 1, is_two_phase=True, starts=_TWO_PHASES),
}
MEDIUM: Final = {
    "two phases": Bounds(3, 0, is_two_phase=True, starts=_TWO_PHASES),
    "near the last epoch": Bounds(2, 0, starts=_NEAR_THE_END),
    "without faults": Bounds(4, 0),
    "second generation": Bounds(4, 1),
    "first generation": Bounds(4, 1, version=0),
}
"""Large enough for every mutant."""
LARGE: Final = {
    "two phases": Bounds(4, 1, is_two_phase=True, starts=_TWO_PHASES),
    "second generation": Bounds(6, 1),
    "first generation": Bounds(6, 1, version=0),
    "two faults": Bounds(5, 2),
    "near the last epoch": Bounds(4, 1, starts=_NEAR_THE_END),
    "requests are held": Bounds(5, 1, hold_ms=100),
}
