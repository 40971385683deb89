"""Child processes find our modules and Python's, whatever the project under test calls its own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from echoless.testkit.broker_process import BrokerProcess
from echoless.testkit.python_child import module_command, module_path

SHADOWS = ("signal", "kio", "uvloop", "echoless")
"""A module of the standard library, two of packages that the broker uses, and our own."""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, first on the path, with folders that cannot be imported."""
    for name in SHADOWS:
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("raise AssertionError('the project imported')")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PYTHONPATH", ".")
    return tmp_path


def test_the_places_of_what_is_installed_come_first(project: Path) -> None:
    """All of the path is there, since a dependency may be anywhere; the project's directory is behind."""
    places = module_path().split(os.pathsep)
    assert {one for one in sys.path if one} <= set(places)
    assert places.index(str(project)) > places.index(str(Path(os.__file__).parent))


@pytest.mark.slow
@pytest.mark.usefixtures("project")
def test_a_broker_starts_in_a_project_with_any_names() -> None:
    """It would end with an AssertionError of the project's folders."""
    with BrokerProcess() as broker:
        assert broker.is_running


@pytest.mark.usefixtures("project")
def test_without_both_the_project_is_imported() -> None:
    """The fixture's folders do stand in the way of a plain `python -m`."""
    plain = _run([sys.executable, "-m", "echoless", "--version"], os.environ)
    assert b"the project imported" in plain.stderr
    ours = _run(
        [*module_command("echoless"), "--version"], {**os.environ, "PYTHONPATH": module_path()}
    )
    assert ours.returncode == 0


def _run(command: list[str], environment: Mapping[str, str]) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(command, env=environment, capture_output=True, check=False)
