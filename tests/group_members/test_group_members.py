"""The short form of the proof: every client and every disturbance once. `python -m tests.group_members` is the long one."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.group_members.casts import CASTS, SHORT
from tests.group_members.run import Options, Run
from tests.support.fresh_seed import fresh_seed

pytestmark = [pytest.mark.cluster, pytest.mark.clients, pytest.mark.slow]


def test_groups_of_every_client_survive_members_and_coordinators(tmp_path: Path) -> None:
    """Every record arrives in order, no partition has two owners, and no answered commit is forgotten."""
    options = Options(casts={name: CASTS[name] for name in SHORT}, seed=fresh_seed())
    verdict = Run(options, tmp_path).run()
    assert verdict.is_kept, "\n".join(verdict.failures)
    assert verdict.figures()["coordinators killed"] == 1
    assert all(findings.generations > 1 for _, findings in verdict.groups.values())
