"""The subject of a commit is one line that a log shows whole; cause and figures are in its body."""

from __future__ import annotations

import subprocess
from typing import Final

import pytest

from tests.support.echoless import REPOSITORY

SUBJECT_MAX: Final = 72


def _git(*arguments: str) -> str:
    command = ["git", "-C", str(REPOSITORY), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else ""


def _base() -> str:
    """The last tag, or else the commit with which this rule came."""
    introduced = _git("log", "--diff-filter=A", "--format=%H", "--", "tests/test_commits.py")
    return _git("describe", "--tags", "--abbrev=0") or introduced.partition("\n")[0]


def test_subjects_are_short() -> None:
    """At most 72 characters, for all commits since the last release."""
    base = _base()
    if not base:
        pytest.skip("this tree has no history: it is no clone, or a shallow one")
    subjects = _git("log", "--no-merges", "--format=%h %s", f"{base}..HEAD").splitlines()
    assert [one for one in subjects if len(one.partition(" ")[2]) > SUBJECT_MAX] == []
