"""The order of connections: no EndTxn of a transaction ends the next one, in any order of reading and moving."""

from __future__ import annotations

from unittest.mock import patch

import pytest

from echoless.coordinators.transactions import connection_order, transactional_id
from tests.coordinators.transactions.exploration.connections import ConnectionBounds, explore
from tests.coordinators.transactions.exploration.world import BrokenInvariantError


@pytest.mark.parametrize(
    "bounds",
    [
        pytest.param(ConnectionBounds(4, 0), id="the coordinator stays"),
        pytest.param(ConnectionBounds(3, 2), id="it moves away and back"),
        pytest.param(
            ConnectionBounds(3, 2, version=2, keeps_order=False), id="epochs rise; no rule needed"
        ),
    ],
)
def test_no_end_of_one_transaction_ends_the_next(bounds: ConnectionBounds):
    """The whole space is visited."""
    assert explore(bounds) > 100


def test_without_the_rule_a_delayed_end_ends_the_next_transaction():
    """Jepsen's finding: the first generation of the protocol alone does not keep them apart."""
    with pytest.raises(BrokenInvariantError):
        explore(ConnectionBounds(3, 0, keeps_order=False))


def test_a_coordinator_that_comes_back_has_forgotten_the_order():
    """Unless connections from before its election count as old, a request that one of them holds ends the next."""
    is_overtaken = connection_order.is_overtaken

    def forgetful(state, request, given):
        return is_overtaken(state, request, given._replace(elected_connection=0))

    with patch.object(transactional_id, "is_overtaken", forgetful):
        assert explore(ConnectionBounds(4, 0)) > 100
        with pytest.raises(BrokenInvariantError):
            explore(ConnectionBounds(3, 2))
