"""Each rule of the transaction protocol holds in its model, and the model finds a counterexample without it."""

from __future__ import annotations

import pytest

from tests.models.checks import CHECKS, Check
from tests.models.spin import run
from tests.toolchain import require

QUICK = [check for check in CHECKS if check.is_quick]


@pytest.mark.slow
@pytest.mark.parametrize("check", QUICK, ids=lambda check: check.name)
def test_a_rule_holds_and_is_needed(check: Check) -> None:
    """Every state within the bounds, or a violated assertion."""
    require("spin")
    found = run(check)
    assert bool(found.violation) != check.holds, found
    assert found.states > 20
