"""The interpreter that CI makes its environment with."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.support.echoless import REPOSITORY

pytestmark = pytest.mark.slow


def _interpreter(
    path: Path, *, optimised: bool = False, recent: bool = True, venv: bool = True
) -> Path:
    """A program that answers what `.ci/python` asks an interpreter."""
    path.parent.mkdir(parents=True, exist_ok=True)
    statuses = {"enable-optimizations": optimised, "version_info": recent, "ensurepip": venv}
    cases = [f"*{asked}*) exit {int(not answer)} ;;" for asked, answer in statuses.items()]
    path.write_text("\n".join(("#!/bin/sh", 'case "$2" in', *cases, "esac", "exit 70", "")))
    path.chmod(0o755)
    return path


def _chosen(on_path: Path, distribution: Path) -> tuple[str, str]:
    """The path printed, and the reason."""
    for name in ("bash", "env", "id"):  # no apt-get
        link = on_path.parent / name
        link.symlink_to(f"/usr/bin/{name}")
    done = subprocess.run(
        [REPOSITORY / ".ci" / "python", distribution],
        env={"PATH": str(on_path.parent)},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    return done.stdout.strip(), done.stderr.strip()


@pytest.mark.parametrize(
    ("on_path", "distribution", "reason"),
    [
        ({}, {"optimised": True}, None),
        ({"optimised": True}, {}, "it was built with --enable-optimizations"),
        ({}, {"recent": False}, "older than 3.11"),
        ({}, {"venv": False}, "install python3-venv"),
    ],
    ids=["not optimised", "optimised", "too old", "without venv"],
)
def test_an_optimised_interpreter_is_preferred(
    tmp_path: Path, on_path: dict[str, bool], distribution: dict[str, bool], reason: str | None
) -> None:
    """The distribution's, unless it cannot serve or the one on the PATH is as fast."""
    ours = _interpreter(tmp_path / "bin" / "python3", **on_path)
    theirs = _interpreter(tmp_path / "usr" / "python3", **distribution)
    chosen, said = _chosen(ours, theirs)
    assert chosen == str(theirs if reason is None else ours)
    assert (reason or "was built without optimisations") in said


def test_without_a_distribution_the_path_decides(tmp_path: Path) -> None:
    """A machine that has one interpreter uses it."""
    ours = _interpreter(tmp_path / "bin" / "python3")
    assert _chosen(ours, tmp_path / "none")[0] == str(ours)
