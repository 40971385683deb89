"""`echoless demo`: what it counts, and the story as a whole."""

from __future__ import annotations

import pytest

from echoless.cli.demonstration.run import judge
from tests.cli.command import Command


def test_counts_duplicates_losses_and_disorder() -> None:
    """Stored twice, acknowledged but missing, and after a greater one are three things."""
    outcome = judge(True, 8, {0, 1, 2, 3, 4}, {0: [0, 2, 2, 1, 0], 1: [3]})
    assert (outcome.sent, outcome.acknowledged, outcome.stored) == (8, 5, 6)
    assert (outcome.duplicates, outcome.lost, outcome.out_of_order) == (2, 1, 1)


@pytest.mark.slow
def test_story_holds(echoless: Command) -> None:
    """Without idempotence lost acknowledgements double records; with it nothing is doubled or lost."""
    ran = echoless("demo", "--records", 300, "--lose-every", 3, "--json")
    assert ran.code == 0
    without, with_ = ran.json
    assert without["duplicates"] > 0
    assert (with_["stored"], with_["duplicates"], with_["lost"]) == (300, 0, 0)
    assert with_["acknowledgements_lost"] > 0
