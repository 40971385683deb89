"""The files for spark-submit."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from echoless.pipeline.package import package_command
from tests.support.echoless import SOURCES


def test_the_zip_has_what_the_jobs_import(tmp_path: Path) -> None:
    """Four rooms and their files, nothing of the broker; the same sources make the same bytes."""
    for name in ("one", "other"):
        package_command(tmp_path / name)
    archives = [(tmp_path / name / "echoless.zip") for name in ("one", "other")]
    assert archives[0].read_bytes() == archives[1].read_bytes()
    names = zipfile.ZipFile(archives[0]).namelist()
    assert {name.split("/")[0] for name in names} == {"echoless"}
    rooms = {name.split("/")[1] for name in names if name.count("/") > 1}
    assert rooms == {"client", "diagram", "pipeline", "protocol", "spark"}
    assert {"pipeline/commands.py", "pipeline/audit/report.html"} <= {
        name.removeprefix("echoless/") for name in names
    }


@pytest.mark.slow
def test_the_script_runs_from_the_zip_alone(tmp_path: Path) -> None:
    """It starts as spark-submit starts it: the zip on the path, and nothing of our tree."""
    package_command(tmp_path)
    archive = str(tmp_path / "echoless.zip")
    code = (
        f"import runpy, sys; sys.argv = ['x', 'mirror', '--help'];"
        f"sys.path[:] = [{archive!r}, *(one for one in sys.path if one != {str(SOURCES)!r})];"
        "runpy.run_path('echoless_pipeline.py')"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env={name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "Usage: spark-submit echoless_pipeline.py mirror" in done.stdout
    assert "--create-topics" in done.stdout
