"""Running `echoless` inside the test's own process, with its output and exit code caught."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

import pytest

from echoless.cli.main import main


class Ran(NamedTuple):
    """The outcome of one command."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


class Command:
    """`echoless ARGUMENTS` without starting a process."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def __call__(self, *arguments: object) -> Ran:
        self._capsys.readouterr()
        try:
            code = main([str(argument) for argument in arguments])
        except SystemExit as error:
            code = int(error.code or 0)
        return Ran(code, *self._capsys.readouterr())
