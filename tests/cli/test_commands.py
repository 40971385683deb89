"""The commands as they are listed, and what is imported for one of them."""

from __future__ import annotations

import subprocess
import sys

import pytest
from typer.main import get_group

from echoless.cli.commands import COMMANDS, app_for, app_with

_LONG = 1000


@pytest.mark.slow
def test_each_command_says_of_itself_what_is_listed() -> None:
    """The list is written without importing their files."""
    real, listed = (get_group(app_with(names)).commands for names in (COMMANDS, ()))
    assert list(listed) == ["serve", *COMMANDS]
    for name in COMMANDS:
        said = real[name].get_short_help_str(_LONG)
        assert listed[name].get_short_help_str(_LONG) == said, name


@pytest.mark.parametrize("arguments", [["topics", "list"], ["--", "topics"]])
def test_the_command_that_is_asked_for_can_run(arguments: list[str]) -> None:
    """An option before it does not hide it."""
    assert "list" in get_group(app_for(arguments)).commands["topics"].commands  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("line", "files"), [("['--help']", []), ("['brokers', '--help']", ["brokers"])]
)
def test_only_the_file_that_is_needed_is_imported(line: str, files: list[str]) -> None:
    """The others would take longer than the command."""
    names = [name.replace("-", "_") for name in COMMANDS]
    program = (
        f"import sys; from echoless.cli.main import main\ntry: main({line})\nexcept SystemExit: pass\n"
        f"print([one for one in {names} if f'echoless.cli.{{one}}' in sys.modules])"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert ran.stdout.splitlines()[-1] == str(files)


@pytest.mark.parametrize(
    ("arguments", "unneeded"),
    [
        (["--help"], ["rich", "echoless.cli.cluster"]),
        (
            ["topics", "list", "--bootstrap-server", "127.0.0.1:1"],
            ["echoless.cli.admin", "echoless.broker.config.names"],
        ),
    ],
)
def test_what_a_command_does_without_is_not_imported(
    arguments: list[str], unneeded: list[str]
) -> None:
    """Help draws no frames; a command on the Kafka port asks for no setting of a broker."""
    program = (
        f"import sys; from echoless.cli.main import main\ntry: main({arguments})\nexcept SystemExit: pass\n"
        f"print([one for one in {unneeded} if one in sys.modules], 'typer' in sys.modules)"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert ran.stdout.splitlines()[-1] == "[] True"
