"""`echoless faults` on a real broker."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from echoless.testkit.broker_process import BrokerProcess
from tests.cli.command import Command

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def admin() -> Iterator[str]:
    """The admin port of one broker for all tests of this file."""
    with BrokerProcess() as broker:
        yield broker.admin


def test_rules_are_added_listed_and_removed(echoless: Command, admin: str) -> None:
    """Numbers, ranges and texts become what the rule needs."""
    match = ("--match", "topic=7", "--match", "partition=0", "--match", "base_sequence=1-5")
    schedule = (
        "--skip",
        1,
        "--times",
        2,
        "--probability",
        0.5,
        "--seed",
        3,
        "--duration-ms",
        60000,
    )
    arguments = ("--name", "slow", *match, *schedule, "delay_response", "ms=100-300")
    (rule,) = echoless("faults", "add", *arguments, "--admin", admin, "--json").json
    assert rule["match"] == {"topic": "7", "partition": 0, "base_sequence": "1-5"}
    assert rule["action"] == {"type": "delay_response", "ms": [100, 300]}
    assert rule["schedule"] == {
        "skip": 1,
        "times": 2,
        "probability": 0.5,
        "seed": 3,
        "duration_ms": 60000,
    }
    table = echoless("faults", "list", "--admin", admin).out
    assert "1 rule" in table
    assert "delay_response ms=[100, 300]" in table
    assert echoless("faults", "remove", "slow", "--admin", admin, "--json").json == [rule]


def test_the_rules_of_a_file_are_added(echoless: Command, admin: str, tmp_path: Path) -> None:
    """They are added as if posted."""
    path = tmp_path / "rules.json"
    path.write_text(json.dumps([{"action": "twice"}, {"action": "swap"}]))
    added = echoless("faults", "add", "--file", path, "--admin", admin, "--json").json
    assert [rule["action"]["type"] for rule in added] == ["twice", "swap"]
    assert len(echoless("faults", "clear", "--admin", admin, "--json").json) == 2


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("add", "lose"), "400: action.type takes one of"),
        (("add", "error", "code"), "takes FIELD=VALUE, not 'code'"),
        (("add", "--name", "x"), "takes an action, or --file"),
        (("add", "--file", "/nowhere.json"), "--file: cannot read /nowhere.json"),
        (("remove", "nobody"), "404: there is no rule 'nobody'"),
    ],
)
def test_what_cannot_be_done_is_said_in_one_line(
    echoless: Command, admin: str, arguments: tuple[str, ...], reason: str
) -> None:
    """Exit code 1, and the reason on standard error."""
    ran = echoless("faults", *arguments, "--admin", admin)
    assert ran.code == 1
    assert reason in ran.err
    assert ran.err.count("\n") == 1
