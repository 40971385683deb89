"""One suite of another project: where its sources come from, which broker it needs, and how its outcomes are read."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

REPOSITORY: Final = Path(__file__).parents[2]
CACHE: Final = REPOSITORY / ".cache" / "foreign-suites"
PAGE: Final = REPOSITORY / "docs" / "foreign-suites.md"
_ROW: Final = re.compile(r"^\| (\S+) \| `(.+)` \| (.+) \|$")


@dataclass(frozen=True, slots=True, kw_only=True)
class Suite:
    """A suite, whose directory in the cache has its name and version."""

    name: str
    version: str
    settings: Mapping[str, str]
    """The broker's settings, which its own project gives Apache Kafka as well."""
    prepare: Callable[[Path], None]
    """Puts sources and tools into the directory."""
    command: Callable[[Path, str], Sequence[str]]
    """The command that runs the suite in the directory against the broker at an address."""
    environment: Mapping[str, str]
    outcome: re.Pattern[str]
    """Matches a line of its output that says how a test ended: groups `test` and `outcome`."""
    arguments: Sequence[str] = ()
    """Further arguments of the broker."""
    listen: str = "127.0.0.1:0"
    needs_own_network: bool = False
    """Whether it asks for fixed ports, and runs in a network namespace that only root can make."""

    @property
    def directory(self) -> Path:
        return CACHE / f"{self.name}-{self.version}"


def outcomes(suite: Suite, output: str) -> dict[str, str]:
    """How each test ended: passed, failed or skipped."""
    words = {"pass": "passed", "fail": "failed", "erro": "failed", "skip": "skipped"}
    return {
        found["test"]: words[found["outcome"].lower()[:4]]
        for found in suite.outcome.finditer(output)
    }


def missed(name: str) -> dict[str, str]:
    """The tests that the page lists as not passed here, with the reason."""
    rows = (_ROW.match(line) for line in PAGE.read_text().splitlines())
    return {row[2]: row[3] for row in rows if row is not None and row[1] == name}


def surprises(found: Mapping[str, str], listed: Mapping[str, str]) -> list[str]:
    """Tests that fail and are not listed, and those that are listed and pass or are no longer there."""
    problems = [
        f"{test} fails, and is not listed"
        for test, outcome in found.items()
        if outcome == "failed" and test not in listed
    ]
    problems += [
        f"{test} is listed as missed: {found.get(test, 'not there')}"
        for test in listed
        if found.get(test) in (None, "passed")
    ]
    return problems


def run(command: Sequence[str], directory: Path, environment: Mapping[str, str]) -> str:
    """Runs one command; returns all that it printed, whatever its exit status."""
    done = subprocess.run(
        command,
        cwd=directory,
        env=dict(environment),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    return done.stdout
