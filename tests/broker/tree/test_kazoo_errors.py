"""kazoo's errors: which ones changed nothing, and which leave the outcome unknown."""

from __future__ import annotations

import pytest
from kazoo import exceptions

from echoless.broker.tree.kazoo_errors import AccessDeniedError, error_in, is_unforeseen, translated
from echoless.broker.tree.node_tree import (
    BadVersionError,
    Check,
    ConnectionLostError,
    Create,
    MultiFailedError,
    NodeError,
    NoNodeError,
)

OPERATIONS = [Create("/a"), Check("/b", 3), Create("/c")]


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (exceptions.NoNodeError(), NoNodeError),
        (exceptions.BadVersionError(), BadVersionError),
        (exceptions.NoAuthError(), AccessDeniedError),
        (exceptions.QuotaExceededError(), NodeError),
    ],
)
def test_a_refusal_names_its_node(error: Exception, expected: type[NodeError]) -> None:
    """Nothing was changed, and the caller may decide again at once."""
    refusal = translated("/a/b", error)
    assert type(refusal) is expected
    assert str(refusal).startswith("/a/b: ")
    assert not is_unforeseen(error)


@pytest.mark.parametrize(
    ("error", "unforeseen"),
    [
        (exceptions.ConnectionLoss(), False),
        (exceptions.SessionExpiredError(), False),
        (exceptions.MarshallingError(), True),
        (ValueError("an answer that makes no sense"), True),
    ],
)
def test_anything_else_leaves_the_outcome_unknown(error: Exception, unforeseen: bool) -> None:
    """Only while the connection is still there does it have to be dropped."""
    assert isinstance(translated("/a", error), ConnectionLostError)
    assert is_unforeseen(error) is unforeseen


def test_a_failed_multi_names_the_operation_at_fault() -> None:
    """Those before it were rolled back, and those after it were not tried."""
    rolled_back, skipped = exceptions.RolledBackError(), exceptions.RuntimeInconsistency()
    error = error_in(OPERATIONS, [rolled_back, exceptions.BadVersionError(), skipped])
    assert isinstance(error, MultiFailedError)
    assert error.index == 1
    assert isinstance(error.cause, BadVersionError)
    assert error_in(OPERATIONS, ["/a", True, "/c"]) is None


def test_a_multi_that_failed_for_another_reason_has_an_unknown_outcome() -> None:
    """No operation of it is at fault."""
    lost = [exceptions.ConnectionLoss()] * 3
    assert isinstance(error_in(OPERATIONS, lost), ConnectionLostError)
