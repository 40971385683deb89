"""Names that the shell completes, asked for as bash, zsh and fish do."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from echoless.testkit.admin import Admin
from tests.cli.command import Command
from tests.support.echoless import Echoless

pytestmark = pytest.mark.slow

RULE = {"name": "lose-one", "match": {"api": "fetch", "topic": "none"}, "action": "drop_response"}
NOWHERE = {"ECHOLESS_BOOTSTRAP_SERVER": "127.0.0.1:1", "ECHOLESS_ADMIN": "127.0.0.1:1"}


def offered(shell: str, line: str, environment: dict[str, str]) -> set[str]:
    """Names that the shell is told for the last word of the line."""
    ask = {
        "_ECHOLESS_COMPLETE": f"complete_{shell}",
        "_TYPER_COMPLETE_ARGS": line,
        "_TYPER_COMPLETE_FISH_ACTION": "get-args",
        "COMP_WORDS": line,
        "COMP_CWORD": str(line.count(" ")),
    }
    done = subprocess.run(
        [sys.executable, "-m", "echoless"],
        env={**os.environ, **ask, **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.stderr == ""
    return set(re.findall(r"[\w.-]+", done.stdout)) - {"_arguments"}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """A broker with topics and a rule, by the variables that commands take."""
    broker = Echoless(tmp_path_factory.mktemp("broker"))
    broker.start()
    Admin(broker.admin_address).post("/faults", RULE)
    yield {
        "ECHOLESS_BOOTSTRAP_SERVER": broker.kafka_address,
        "ECHOLESS_ADMIN": broker.admin_address,
    }
    broker.kill()


@pytest.fixture(autouse=True)
def topics(place: dict[str, str], echoless: Command) -> None:
    """Three of them."""
    address = place["ECHOLESS_BOOTSTRAP_SERVER"]
    for name in ("orders", "orders.dead", "payments"):
        created = echoless(
            *("topics", "create", name, "--if-not-exists", "--bootstrap-server", address)
        )
        assert created.code == 0, created.err


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_topics_are_completed(shell: str, place: dict[str, str]) -> None:
    """Names that begin so are offered."""
    assert offered(shell, "echoless consume or", place) == {"orders", "orders.dead"}


def test_the_cluster_that_the_line_names_is_asked(place: dict[str, str]) -> None:
    """An option before the word counts more than the environment."""
    address = place["ECHOLESS_BOOTSTRAP_SERVER"]
    line = f"echoless topics describe --bootstrap-server {address} p"
    assert offered("bash", line, NOWHERE) == {"payments"}


def test_rules_are_completed(place: dict[str, str]) -> None:
    """Their names come from the admin port."""
    assert offered("bash", "echoless faults remove l", place) == {"lose-one"}


def test_listeners_are_completed(place: dict[str, str]) -> None:
    """Their names come from the admin port."""
    assert offered("bash", "echoless listeners set PL", place) == {"PLAINTEXT"}


def test_users_are_completed(place: dict[str, str], echoless: Command, tmp_path: Path) -> None:
    """Those who have a credential."""
    password = tmp_path / "password"
    password.write_text("correct horse")
    address = place["ECHOLESS_BOOTSTRAP_SERVER"]
    for name in ("billing", "bot"):
        added = echoless(
            *("users", "add", name, "--password-file", password, "--bootstrap-server", address)
        )
        assert added.code == 0, added.err
    assert offered("bash", "echoless users remove bi", place) == {"billing"}


@pytest.mark.parametrize(
    "line",
    [
        *("echoless topics delete o", "echoless groups describe o"),
        *("echoless faults remove l", "echoless users remove b"),
    ],
)
def test_without_a_broker_nothing_is_completed(line: str) -> None:
    """Nothing is said, either."""
    assert offered("bash", line, NOWHERE) == set()
