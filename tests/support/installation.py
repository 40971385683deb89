"""Our distributions, and environments that have one of them: what `pip install echoless` gives a user.

An environment has the packages that the distribution requires, and no others. They are links to those of this
interpreter: a distribution that forgets one to require it fails there, and nothing is downloaded.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tomllib
import venv
from collections.abc import Iterable, Iterator
from importlib import metadata
from pathlib import Path
from typing import NamedTuple

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.support.echoless import REPOSITORY

_BUILD = (
    "import sys; from setuptools import build_meta; getattr(build_meta, sys.argv[1])(sys.argv[2])"
)
_PIP = (sys.executable, "-m", "pip", "--disable-pip-version-check")


class Distributions(NamedTuple):
    """Everything that is published, made of the files that git tracks."""

    wheel: Path
    sdist: Path
    wheel_of_sdist: Path

    @classmethod
    def build(cls, directory: Path) -> Distributions:
        """Makes them in `directory`."""
        project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))
        tools = directory / "tools"
        run(*_PIP, "install", "-q", "--target", str(tools), *project["build-system"]["requires"])
        source = _tracked_files(directory / "source")
        sdist = _build("build_sdist", source, directory, tools)
        unpacked_into = directory / "unpacked"
        unpacked_into.mkdir()
        # not `tarfile`: before Python 3.11.4 it knows no filter, and since 3.12 it warns without one
        run("tar", "-x", "-C", str(unpacked_into), "-f", str(sdist))
        (unpacked,) = unpacked_into.iterdir()
        return cls(
            wheel=_build("build_wheel", source, directory / "wheel", tools),
            sdist=sdist,
            wheel_of_sdist=_build("build_wheel", unpacked, directory / "wheel-of-sdist", tools),
        )


def _tracked_files(target: Path) -> Path:
    names = run("git", "ls-files", "-z", directory=REPOSITORY).split("\0")
    for name in filter(None, names):
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(REPOSITORY / name, target / name, follow_symlinks=False)
    return target


def _build(hook: str, source: Path, target: Path, tools: Path) -> Path:
    target.mkdir(exist_ok=True)
    command = (sys.executable, "-c", _BUILD, hook, str(target))
    run(*command, directory=source, python_path=str(tools))
    (built,) = (path for path in target.iterdir() if path.suffix in {".gz", ".whl"})
    return built


class Installation:
    """A virtual environment with a wheel of ours; `extras` are those of the wheel."""

    def __init__(
        self, directory: Path, wheel: Path, *, extras: str = "", others: Iterable[str] = ()
    ) -> None:
        """`others` are packages that the wheel does not require, such as pytest."""
        self._directory = directory
        venv.create(directory, symlinks=True)
        (self.packages,) = directory.glob("lib/python*/site-packages")
        pip = (*_PIP, "--python", self.program("python"), "install", "-q", "--no-deps")
        run(*pip, "--no-index", str(wheel))
        (own,) = metadata.distributions(path=[str(self.packages)])
        wanted = [Requirement(text) for text in (f"echoless[{extras}]", *others)]
        for one in _required(wanted, {"echoless": own}):
            self._link(one)

    def program(self, name: str) -> str:
        """The path of one of its programs."""
        return str(self._directory / "bin" / name)

    def _link(self, package: metadata.Distribution) -> None:
        for name in {file.parts[0] for file in package.files or ()} - {"..", "__pycache__"}:
            link = self.packages / name
            if not link.exists():
                link.symlink_to(Path(str(package.locate_file(name))))


def _required(
    wanted: list[Requirement], ours: dict[str, metadata.Distribution]
) -> Iterator[metadata.Distribution]:
    """The installed distributions that are wanted, and those that they require in turn, without `ours`."""
    seen: set[tuple[str, frozenset[str]]] = set()
    while wanted:
        one = wanted.pop()
        name = canonicalize_name(one.name)
        if (name, frozenset(one.extras)) in seen:
            continue
        seen.add((name, frozenset(one.extras)))
        found = ours.get(name) or metadata.distribution(name)
        if name not in ours:
            yield found
        for text in found.requires or ():
            required = Requirement(text)
            marker = required.marker
            if marker is None or any(marker.evaluate({"extra": e}) for e in one.extras or {""}):
                wanted.append(required)


def run(*command: str, directory: Path | None = None, python_path: str = "") -> str:
    """Runs a command with this `PYTHONPATH`; returns its output."""
    environment = {**os.environ, "PYTHONPATH": python_path}
    ended = subprocess.run(
        command, capture_output=True, text=True, cwd=directory, env=environment, check=False
    )
    assert ended.returncode == 0, f"{command}\n{ended.stdout}\n{ended.stderr}"
    return ended.stdout
