"""Options with which a JVM that lives for some seconds takes a third of the processor time.

Compiling well costs such a JVM more than it gives. So does loading thousands of classes one by one: `python -m tests.toolchain`
writes those that a program loads into an archive (class data sharing), which later JVMs with the same class path map. An
archive that does not fit is passed over by the JVM; where there is none, everything works without.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.support.server_process import ServerStartError
from tests.support.tool import Tool, ToolError

BASE: Final = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")
_REPOSITORY: Final = Path(__file__).parents[2]
_ARCHIVES: Final = _REPOSITORY / ".cache" / "class-archives"
TRAINING_S: Final = 600.0
"""How long a program may take to write its archive as it ends."""


@dataclass(frozen=True, slots=True)
class ClassArchive:
    """The archive of the programs that have all jars of a directory on their class path."""

    name: str
    jars: Path

    @property
    def path(self) -> Path:
        """The file; another Java, or other jars, have another."""
        java = Path(shutil.which("java") or "java").resolve()
        seen = hashlib.sha256()
        for path in (java, *sorted(self.jars.glob("*.jar"))):
            seen.update(f"{path} {_stamp(path)}\n".encode())
        return _ARCHIVES / f"{self.name}-{seen.hexdigest()[:12]}.jsa"

    def options(self) -> tuple[str, ...]:
        """Options that map it; none if it was not made."""
        path = self.path
        return (f"-XX:SharedArchiveFile={path}", "-Xlog:disable") if path.exists() else ()

    def tool(self, train: Callable[[], None], *needs: str) -> Tool:
        """Makes it: `train` runs a program whose JVM takes its options from JAVA_TOOL_OPTIONS, to its orderly end."""
        return Tool(
            name=f"classes-of-{self.name}",
            used_by="none, but the JVMs of others start in twice the time",
            is_present=lambda: self.path.exists(),  # noqa: PLW0108 - the jars may come later
            prepare=lambda: self._make(train),
            needs=needs,
        )

    def _make(self, train: Callable[[], None]) -> None:
        _ARCHIVES.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=_ARCHIVES) as directory:
            made = Path(directory) / "made.jsa"
            options = (*BASE, f"-XX:ArchiveClassesAtExit={made}", "-Xlog:disable")
            try:
                with _environment("JAVA_TOOL_OPTIONS", " ".join(options)):
                    train()
            except (subprocess.SubprocessError, ServerStartError, OSError) as error:
                raise ToolError(f"it did not run: {error}") from error
            if not made.exists():
                raise ToolError("the JVM wrote no archive")
            made.rename(self.path)


def _stamp(path: Path) -> tuple[int, int]:
    try:
        found = path.stat()
    except OSError:
        return (0, 0)
    return (found.st_size, found.st_mtime_ns)


@contextmanager
def _environment(name: str, value: str) -> Iterator[None]:
    before = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before


def spark_archive() -> ClassArchive | None:
    """The one of the installed Spark: driver, executors and daemons; None without PySpark."""
    found = importlib.util.find_spec("pyspark")
    if found is None or found.origin is None:
        return None
    return ClassArchive("spark", Path(found.origin).parent / "jars")


def spark_options() -> str:
    """Options for a JVM of Spark, as text."""
    archive = spark_archive()
    return " ".join((*BASE, *(() if archive is None else archive.options())))


def quicken_spark() -> None:
    """Has every Spark that this process or one below it starts begin with them."""
    os.environ.setdefault("SPARK_SUBMIT_OPTS", spark_options())
    os.environ.setdefault("SPARK_LAUNCHER_OPTS", " ".join(BASE))


def train_spark() -> None:
    """Runs a driver. Raises `subprocess.SubprocessError`."""
    command = [sys.executable, "-m", "tests.support.spark_training"]
    subprocess.run(command, check=True, cwd=_REPOSITORY, capture_output=True, timeout=TRAINING_S)
