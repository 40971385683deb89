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


def test_a_script_is_added_in_one_line(echoless: Command, admin: str) -> None:
    """Steps are separated by `then`; each has the fields of its action, its schedule and its match."""
    words = ("drop_response", "times=2", "then", "delay_response", "ms=5", "probability=0.5")
    more = ("then", "close_after", "match.api=end_txn")
    arguments = ("--name", "s", "--match", "api=produce", *words, *more, "nth=1,3", "--optional")
    (rule,) = echoless("faults", "add", *arguments, "--admin", admin, "--json").json
    assert [step["action"]["type"] for step in rule["script"]] == [
        *("drop_response", "delay_response", "close_after"),
    ]
    assert [step["match"]["api"] for step in rule["script"]] == ["produce", "produce", "end_txn"]
    schedules = [step["schedule"] for step in rule["script"]]
    assert schedules[0] == {"times": 2}
    assert (schedules[1]["probability"], schedules[2]) == (0.5, {"nth": [1, 3]})
    assert rule["optional"] is True
    table = echoless("faults", "list", "--admin", admin).out
    assert "then delay_response ms=5 then close_after" in " ".join(table.split())
    echoless("faults", "clear", "--admin", admin)


def test_strict_fails_for_rules_that_never_struck(echoless: Command, admin: str) -> None:
    """Those that are there and those that were removed, until they are forgotten; not optional ones."""
    place = ("--admin", admin)
    echoless("faults", "clear", "--forget", *place)
    echoless("faults", "add", "--name", "may-miss", "--optional", "twice", *place)
    assert echoless("faults", "list", "--strict", *place).code == 0
    echoless("faults", "add", "--name", "misses", "--nth", "2", "twice", *place)
    ran = echoless("faults", "list", "--strict", *place)
    assert (ran.code, "never struck: misses (" in ran.err) == (1, True)
    assert echoless("faults", "list", *place).code == 0
    ran = echoless("faults", "clear", "--strict", *place)
    assert (ran.code, "never struck: misses (" in ran.err) == (1, True)
    assert echoless("faults", "list", "--strict", *place).code == 1
    echoless("faults", "clear", "--forget", *place)
    assert echoless("faults", "list", "--strict", *place).code == 0


def test_rules_are_waited_for_and_released(echoless: Command, admin: str) -> None:
    """A count that does not come is an error."""
    place = ("--admin", admin)
    echoless("faults", "add", "--name", "h", "hold_request", *place)
    assert echoless("faults", "wait", "h", *place).code == 0
    ran = echoless("faults", "wait", "h", "--held", 1, "--within-ms", 10, *place)
    assert (ran.code, "faults wait: h: no 1 held in 10 ms" in ran.err) == (1, True)
    (rule,) = echoless("faults", "release", "h", *place, "--json").json
    assert (rule["name"], rule["held"]) == ("h", 0)
    assert "404: there is no rule 'x'" in echoless("faults", "release", "x", *place).err
    assert "the broker holds no rule x" in echoless("faults", "wait", "x", *place).err
    echoless("faults", "clear", *place)
