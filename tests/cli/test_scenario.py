"""`echoless scenario`: the list, a run with its verdict and diagram, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from echoless.testkit.scenarios.catalogue import SCENARIOS
from tests.cli.command import Command


def test_lists_every_scenario(echoless: Command) -> None:
    """Each is listed with its sentence, and the clients that have a part in it."""
    listed = echoless("scenario", "list", "--json").json
    assert [one["name"] for one in listed] == list(SCENARIOS)
    assert "scripted" in listed[0]["clients"]
    assert "success" in echoless("scenario", "list").out


@pytest.mark.slow
def test_a_run_has_steps_a_verdict_and_a_diagram(echoless: Command, tmp_path: Path) -> None:
    """For people, for machines, and as a picture."""
    ran = echoless("scenario", "run", "zombie", "--svg", tmp_path / "zombie.svg")
    assert ran.code == 0
    assert "1. A (114-120) is stored" in ran.out
    assert "verdict: refused, and not stored" in ran.out
    assert "sequenceDiagram" in ran.out
    assert (tmp_path / "zombie.svg").read_text().startswith("<svg")
    document = echoless("scenario", "run", "success", "--json").json
    assert document["verdict"]["outcome"] == "stored once, in order"
    assert document["problem"] is None
    assert [one["event"] for one in document["events"]].count("decision") == 5


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("flight",), "there is no scenario flight"),
        (("success", "--client", "telnet"), "there is no client telnet"),
        (
            ("window-missed", "--client", "kafkajs"),
            "kafkajs has no part in window-missed: it sends",
        ),
    ],
)
def test_what_cannot_be_played_is_refused(
    echoless: Command, arguments: tuple[str, ...], said: str
) -> None:
    """The reason is given before any broker starts."""
    ran = echoless("scenario", "run", *arguments)
    assert ran.code != 0
    assert said in ran.err
