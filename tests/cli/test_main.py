"""The `echoless` command itself: routing, exit codes, and what `serve` does not import."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.command import Command


@pytest.mark.slow
def test_serve_goes_straight_to_the_broker() -> None:
    """`serve` imports nothing of the command line's libraries: they would cost its start."""
    program = (
        "import sys; from echoless.cli.main import main; code = main(['serve', '--broker-id', 'x']); "
        "print(code, [m for m in ('typer', 'rich', 'kio', 'aiohttp') if m in sys.modules])"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert ran.stdout == "2 []\n"
    assert ran.stderr == "echoless serve: --broker-id: takes an integer, at least 0, not 'x'\n"


def test_help_lists_every_command(echoless: Command) -> None:
    """`--help` names all subcommands, `serve` among them."""
    ran = echoless("--help")
    assert ran.code == 0
    for command in ("serve", "topics", "producers", "dump", "verify", "demo", "decisions", "trace"):
        assert command in ran.out


def test_the_bare_command_says_how_to_begin(echoless: Command) -> None:
    """Five lines, each a command that exists."""
    ran = echoless()
    lines = ran.out.splitlines()
    assert (ran.code, len(lines)) == (0, 5)
    known = {*re.findall(r"^. (\w[\w-]+) ", echoless("--help").out, re.MULTILINE), "--help"}
    assert {re.search(r"echoless (\S+)", line)[1] for line in lines} <= known  # type: ignore[index]


@pytest.mark.slow
def test_a_full_device_is_one_line() -> None:
    """As a script gets it that writes to a full disk: no traceback, and the exit code says it."""
    with Path("/dev/full").open("w") as full:
        ran = subprocess.run(
            [sys.executable, "-m", "echoless", "--help"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert ran.returncode == 1
    assert ran.stderr == "echoless: the output cannot be written: No space left on device\n"


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_completes_commands(echoless: Command, shell: str, monkeypatch) -> None:
    """As the script asks that `--show-completion` prints and `--install-completion` installs."""
    monkeypatch.setenv("_ECHOLESS_COMPLETE", f"complete_{shell}")
    monkeypatch.setenv("_TYPER_COMPLETE_ARGS", "echoless prod")
    monkeypatch.setenv("_TYPER_COMPLETE_FISH_ACTION", "get-args")
    monkeypatch.setenv("COMP_WORDS", "echoless prod")
    monkeypatch.setenv("COMP_CWORD", "1")
    completed = echoless().out
    assert "produce" in completed
    assert "producers" in completed
    assert "topics" not in completed


def test_version_is_shown(echoless: Command) -> None:
    """`--version` names the program, also where it is run without being installed."""
    ran = echoless("--version")
    assert (ran.code, ran.out.startswith("echoless")) == (0, True)


def test_wrong_usage_exits_with_2(echoless: Command) -> None:
    """Anything not understood is wrong usage, as in any command."""
    assert echoless("topics", "list", "--bogus").code == 2
    assert echoless("nothing").code == 2


def test_unreachable_broker_is_one_line_with_the_remedy(echoless: Command) -> None:
    """A broker that is not there is said with its address and what to look at."""
    ran = echoless("topics", "list", "--bootstrap-server", "127.0.0.1:1")
    assert ran.code == 1
    assert ran.err == (
        "echoless: no broker can be reached at 127.0.0.1:1 (Connection refused); "
        "is it running, and is this its --listen address?\n"
    )


def test_bootstrap_server_is_an_address(echoless: Command) -> None:
    """An address without a port is refused with what is taken."""
    ran = echoless("topics", "list", "--bootstrap-server", "localhost")
    assert ran.err == (
        "echoless: --bootstrap-server: takes HOST:PORT[,HOST:PORT...], not 'localhost'\n"
    )
