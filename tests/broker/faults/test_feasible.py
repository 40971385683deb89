"""Rules that are well formed and can never act on this broker."""

from __future__ import annotations

from typing import Any

import pytest

from echoless.broker.config.loading import Config
from echoless.broker.faults.feasible import check_feasible
from echoless.broker.faults.fields import RuleError
from echoless.broker.faults.reading_rules import read_rules

ALONE = Config()
MEMBER = Config(broker_id=1, coordinator="zookeeper://127.0.0.1:2181")
CUT = {"type": "cut_replica_link", "broker_id": 1}


@pytest.mark.parametrize(
    ("config", "rule", "reason"),
    [
        (ALONE, {"action": {**CUT, "broker_id": 2}}, "this broker stands alone"),
        (MEMBER, {"action": CUT}, "and 1 is this one"),
        (
            ALONE,
            {"action": "twice", "match": {"api": "produce", "api_version": 2}},
            "produce is served in versions 3 to 13, not 2",
        ),
        (
            ALONE,
            {"action": "twice", "match": {"api": "lease_pid", "api_version": 1}},
            "lease_pid is of the native port, which has none",
        ),
    ],
)
def test_what_can_never_act_is_refused(config: Config, rule: Any, reason: str) -> None:
    """The reason is given."""
    with pytest.raises(RuleError, match=reason):
        check_feasible(read_rules(rule), config)


@pytest.mark.parametrize(
    "rule",
    [
        {"action": {**CUT, "broker_id": 2}},
        {"action": "twice", "match": {"api": "produce", "api_version": 13}},
        {"action": "twice", "match": {"api_version": 0}},
    ],
)
def test_the_others_are_taken(rule: Any) -> None:
    """A link to another member; a version that is served, or of any API."""
    check_feasible(read_rules(rule), MEMBER)
