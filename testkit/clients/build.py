"""Builds the drivers in other languages, once per source version, with each language's tools.

Results are kept in `~/.cache/echoless/clients` (or `$XDG_CACHE_HOME`), in a directory named after
the digest of the sources, so that two versions of Echoless do not disturb each other. Building
queries Maven Central, npm's registry and Go's module proxy through `mvn`, `npm` and `go`.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_SOURCES: Final = Path(__file__).parent
_TIMEOUT_S: Final = 900
_DIGITS: Final = 12


class BuildError(Exception):
    """A driver could not be built; the message has the command and the end of its output."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Build:
    """One driver that has to be built. `variant` distinguishes builds of the same sources."""

    name: str
    language: str
    """Directory of the sources."""
    variant: str
    tools: tuple[str, ...]
    """Programs needed for the build."""
    steps: Callable[[Path, Path], None]
    """Builds from the source directory into the given one."""

    @property
    def directory(self) -> Path:
        """The directory of the build, existing or not."""
        cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        digest = _digest(_SOURCES / self.language, self.variant)
        return cache / "echoless" / "clients" / f"{self.name}-{digest}"

    @property
    def is_there(self) -> bool:
        return self.directory.is_dir()

    def make(self) -> None:
        """Builds in a temporary directory and moves the result into place, whole.

        Raises `BuildError`.
        """
        for tool in self.tools:
            if shutil.which(tool) is None:
                raise BuildError(f"{self.name}: `{tool}` is not installed")
        self.directory.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=self.directory.parent) as temporary:
            place = Path(temporary) / "built"
            place.mkdir()
            self.steps(_SOURCES / self.language, place)
            if not self.is_there:
                place.rename(self.directory)


def _digest(directory: Path, variant: str) -> str:
    sha = hashlib.sha256(variant.encode())
    for path in sorted(path for path in directory.rglob("*") if path.is_file()):
        sha.update(str(path.relative_to(directory)).encode() + b"\0" + path.read_bytes())
    return sha.hexdigest()[:_DIGITS]


def _run(command: list[str], directory: Path) -> None:
    try:
        subprocess.run(
            command, check=True, capture_output=True, text=True, cwd=directory, timeout=_TIMEOUT_S
        )
    except subprocess.CalledProcessError as error:
        said = (error.stdout + error.stderr).strip().splitlines()[-5:]
        raise BuildError(f"`{' '.join(command)}` failed: {' | '.join(said)}") from error
    except (OSError, subprocess.TimeoutExpired) as error:
        raise BuildError(f"`{' '.join(command)}` failed: {error}") from error


def java(version: str) -> Build:
    """The Java driver with that version of kafka-clients."""

    def steps(sources: Path, place: Path) -> None:
        pom = str(sources / "pom.xml")
        settings = [f"-Dkafka.version={version}", f"-Doutput={place}"]
        _run(["mvn", "-q", "-B", "-f", pom, "package", *settings], sources)

    return Build(
        name=f"java-{version}",
        language="java",
        variant=version,
        tools=("java", "mvn"),
        steps=steps,
    )


def _build_go(sources: Path, place: Path) -> None:
    _run(["go", "build", "-o", str(place / "driver"), "."], sources)


def _build_node(sources: Path, place: Path) -> None:
    shutil.copytree(sources, place, dirs_exist_ok=True)
    _run(["npm", "ci", "--no-audit", "--no-fund"], place)


GO: Final = Build(name="franz-go", language="go", variant="", tools=("go",), steps=_build_go)
NODE: Final = Build(
    name="kafkajs", language="node", variant="", tools=("node", "npm"), steps=_build_node
)
SARAMA: Final = Build(name="sarama", language="sarama", variant="", tools=("go",), steps=_build_go)
PLATFORMATIC: Final = Build(
    name="platformatic",
    language="platformatic",
    variant="",
    tools=("node", "npm"),
    steps=_build_node,
)
