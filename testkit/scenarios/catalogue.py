"""Every scenario by name, in reading order."""

from __future__ import annotations

from typing import Final

from echoless.testkit.scenarios import (
    crashes,
    groups,
    identity,
    pipelining,
    security,
    transactions,
)

_ORDER: Final = (
    *("success", "missing-acknowledgements", "missing-record-batch", "window-missed"),
    *("producer-restarted", "other-partition", "zombie"),
    *("leader-killed", "follower-promoted", "expired-producer-id"),
    *("pipelined-failure", "id-block-race", "restored-snapshot"),
    *("right-revoked", "session-expired", "stolen-producer-id", "bound-producer-id"),
    *("copier-restarted", "two-copiers", "coordinator-killed", "assignment-lost"),
    "static-member-restarted",
    *("commit-answer-lost", "killed-before-the-decision", "killed-after-the-decision"),
    *("zombie-transaction", "transaction-timed-out", "delayed-end", "coordinator-moved"),
    *("marker-delayed", "both-isolations", "offsets-in-a-transaction"),
)
_ALL: Final = {
    scenario.name: scenario
    for scenario in (
        *pipelining.SCENARIOS,
        *identity.SCENARIOS,
        *crashes.SCENARIOS,
        *security.SCENARIOS,
        *groups.SCENARIOS,
        *transactions.SCENARIOS,
    )
}
SCENARIOS: Final = {name: _ALL[name] for name in _ORDER}
