"""Every command that README, docs, messages and alerts name can be typed: it exists, and takes those options.

Commands in blocks are parsed as a shell and the command itself would, up to the point where they would act. Those in
running text may leave out arguments, so only their words and options are looked at.
"""

from __future__ import annotations

import argparse
import functools
import importlib
import re
import shlex
import sys
import tomllib
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import pytest
import typer
import yaml

from echoless.broker.admin.application import application
from echoless.broker.config.loading import load_config
from echoless.cli.commands import COMMANDS, app_with
from tests.support.echoless import REPOSITORY
from tests.support.in_process import in_process

PAGES: Final = (
    *(REPOSITORY / name for name in ("README.md", "CONTRIBUTING.md")),
    *sorted((REPOSITORY / "docs").rglob("*.md")),
)
CODE: Final = tuple(
    path
    for room in sorted((REPOSITORY / "src/echoless").glob("*/"))
    for path in sorted(room.rglob("*.py"))
)
ALERTS: Final = REPOSITORY / "docs/monitoring/alerts.yml"
_BLOCK: Final = re.compile(r"^```\w*\n(.*?)^```|^\n((?:    .*\n)+)", re.MULTILINE | re.DOTALL)
_INLINE: Final = re.compile(
    r"`((?:echoless|python -m|make) (?![^`]*: )[^`]+)`"
)  # what has a colon is a message
_COMMAND: Final = re.compile(r"(?:^|\| |\$ |bin/)(echoless|python -m|make|pip install)(?= )(.*)")
_IN_ALERT: Final = re.compile(r"\becholess [a-z][a-z -]*[a-z]")
_TYPED: Final = re.compile(r"\becholess (?:[a-z]|--)|python -m |curl http|ulimit -|kill -|date -u")
"""Something that an operator can type."""
_USAGE: Final = re.compile(r"[\[|]|\.\.\.")
"""Marks of a line that describes a command instead of giving one."""
_METAVAR: Final = re.compile(r"^[A-Z][A-Z_.:-]*$")
_NOT_OURS: Final = ("pip", "pytest", "zipfile", "venv")


class _ParsedError(Exception):
    """The arguments were understood."""


def _blocks(page: Path) -> str:
    found = _BLOCK.findall(page.read_text(encoding="utf-8"))
    lines = "\n".join(fenced or indented for fenced, indented in found)
    return re.sub(r"\\\n *", "", lines)


def block_commands(page: Path) -> Iterator[str]:
    """The commands of ours in the blocks of a page, one a line."""
    for line in _blocks(page).splitlines():
        for name, rest in _COMMAND.findall(line.strip()):
            yield f"{name} {re.split(r' +#| [|&>]|;', rest.strip())[0]}"


def inline_commands(path: Path) -> Iterator[str]:
    """The commands of ours in backticks, in a page or in the code."""
    text = path.read_text(encoding="utf-8")
    for command in _INLINE.findall(text):
        yield re.sub(r"\s+", " ", command.replace("\\|", "|"))


@functools.cache
def _root(application: typer.Typer) -> Any:
    """The command with all its subcommands; making it takes 0.2 s."""
    return typer.main.get_command(application)


def _of_typer(application: typer.Typer, words: Sequence[str], *, fully: bool) -> None:
    command = _root(application)
    words = list(words)
    while hasattr(command, "commands") and words and not words[0].startswith("-"):
        assert words[0] in command.commands, f"there is no command {words[0]!r}"
        command = command.commands[words.pop(0)]
    if fully and not hasattr(command, "commands"):
        command.make_context(command.name, words)
        return
    known = {option for one in command.params for option in (*one.opts, *one.secondary_opts)}
    known |= {"--help", "--install-completion"}
    assert {word.partition("=")[0] for word in words if word.startswith("--")} <= known


def _of_module(module: str, words: Sequence[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Parses as the module does: by argparse, up to where it would act."""
    spec = find_spec(module)
    assert spec is not None, f"there is no module {module}"
    name = f"{module}.__main__" if spec.submodule_search_locations else module
    assert find_spec(name) is not None, f"{module} cannot be run"
    options = [word for word in words if word.startswith("--")]
    loaded = importlib.import_module(name)
    source = Path(str(loaded.__file__)).read_text(encoding="utf-8")
    if not options or "def main()" not in source or "parse_args()" not in source:
        assert all(option in source for option in options), options
        return
    real = argparse.ArgumentParser.parse_args

    def parse(self: argparse.ArgumentParser, *arguments: Any, **named: Any) -> Any:
        real(self, *arguments, **named)
        raise _ParsedError

    monkeypatch.setattr(argparse.ArgumentParser, "parse_args", parse)
    monkeypatch.setattr(sys, "argv", [module, *words])
    with pytest.raises(_ParsedError):
        loaded.main()


def _check(command: str, monkeypatch: pytest.MonkeyPatch, *, fully: bool) -> None:
    words = ["1" if _METAVAR.match(word) else word for word in shlex.split(command)]
    words = [re.sub(r"\$\w+", "1", word) for word in words]
    fully = fully and "--help" not in words
    match words:
        case ["make", *targets]:
            makefile = (REPOSITORY / "Makefile").read_text(encoding="utf-8")
            names = [one for one in targets if "=" not in one]
            assert all(re.search(rf"^{name}:", makefile, re.MULTILINE) for name in names)
        case ["pip", "install", *packages]:
            project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))
            for extra in re.findall(r"echoless\[(\w+)\]", " ".join(packages)):
                assert extra in project["project"]["optional-dependencies"]
        case ["python", "-m", module, *_] if module in _NOT_OURS:
            pass
        case ["python", "-m", "echoless.spark", *rest]:
            from echoless.pipeline.commands import app as jobs

            _of_typer(jobs, rest, fully=fully and bool(rest))
        case ["python", "-m", module, *rest]:
            _of_module(module, rest, monkeypatch)
        case ["echoless", "serve", *rest]:
            load_config(_without_file(rest), {})
        case ["echoless", *rest]:
            _of_typer(app_with(COMMANDS), rest, fully=fully)


def _without_file(words: Sequence[str]) -> Sequence[str]:
    """The arguments of `serve` without the file that `--config` names: it is the reader's."""
    if "--config" not in words:
        return words
    at = words.index("--config")
    return [*words[:at], *words[at + 2 :]]


def _alternatives(command: str) -> Iterator[str]:
    """`topics create|list` is two commands, and so is `--json | --yes`; brackets and dots say what is optional."""
    command = re.sub(r"\.\.\.|[\[\]]", "", command).replace(" | ", " ")
    for word in command.split():
        if "|" in word and not word.startswith("-"):
            for one in word.split("|"):
                yield from _alternatives(command.replace(word, one, 1))
            return
    yield command


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(REPOSITORY).as_posix())
def test_the_commands_of_a_page_can_be_typed(page: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As they stand in blocks, and by their words and options where they are mentioned."""
    for command in block_commands(page):
        is_usage = _USAGE.search(command) is not None
        for one in _alternatives(command) if is_usage else [command]:
            with monkeypatch.context() as patch:
                _check(one, patch, fully=not is_usage)
    for command in inline_commands(page):
        for one in _alternatives(command):
            with monkeypatch.context() as patch:
                _check(one, patch, fully=False)


def test_the_commands_that_the_code_names_exist(monkeypatch: pytest.MonkeyPatch) -> None:
    """In docstrings, comments and messages."""
    for path in CODE:
        for command in inline_commands(path):
            for one in _alternatives(re.sub(r"\{[^}]*\}", "1", command)):
                with monkeypatch.context() as patch:
                    _check(one, patch, fully=False)


def test_the_commands_that_alerts_name_exist(monkeypatch: pytest.MonkeyPatch) -> None:
    """An operator types them at night."""
    commands = set(_IN_ALERT.findall(ALERTS.read_text(encoding="utf-8")))
    assert commands
    for command in commands:
        _check(" ".join(command.split()[:2]), monkeypatch, fully=False)


def test_every_alert_says_what_to_type() -> None:
    """A remedy that only describes leaves an operator to search the docs at night."""
    groups = yaml.safe_load(ALERTS.read_text(encoding="utf-8"))["groups"]
    remedies = [rule["annotations"]["remedy"] for group in groups for rule in group["rules"]]
    assert [one for one in remedies if not _TYPED.search(one)] == []


async def test_the_pages_that_alerts_name_exist(tmp_path: Path) -> None:
    """Those of the admin port, for curl."""
    paths = set(re.findall(r"curl http://[^/]+(/[a-z]*)", ALERTS.read_text(encoding="utf-8")))
    assert paths
    async with in_process(tmp_path) as running:
        routes = {route.resource.canonical for route in application(running.broker).router.routes()}
    assert paths <= routes


@pytest.mark.parametrize(
    "command", ["echoless audit", "echoless topics lst", "echoless consume --all", "make tests"]
)
def test_a_command_that_does_not_exist_is_found(
    command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or these tests could not fail."""
    with pytest.raises(AssertionError):
        _check(command, monkeypatch, fully=False)
