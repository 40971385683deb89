"""docs/spark-tour.md: every command is played against a broker, and its picture is made.

`TOUR_PICTURES=docs/figures pytest tests/pipeline/test_spark_tour.py` renews the picture.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.echoless import REPOSITORY, Echoless
from tests.toolchain import require

pytestmark = [pytest.mark.spark, pytest.mark.crash, pytest.mark.slow]

PAGE = REPOSITORY / "docs" / "spark-tour.md"
PICTURE = "spark-tour-killed.svg"
PICTURE_BYTES_MAX = 60_000
_BLOCK = re.compile(r"^```(sh|python|text)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def test_a_driver_is_killed_and_the_audit_is_clean(
    start_echoless: Callable[..., Echoless], tmp_path: Path
) -> None:
    """All of the page, in its order, in one shell's directory."""
    require("java")
    broker = start_echoless()
    environment = {
        **os.environ,
        "ECHOLESS_BOOTSTRAP_SERVER": broker.kafka_address,
        "ECHOLESS_ADMIN": broker.admin_address,
        "PYSPARK_SUBMIT_ARGS": "--driver-memory 1g pyspark-shell",
    }
    (tmp_path / ".venv").symlink_to(sys.prefix)
    output = ""
    for kind, text in _BLOCK.findall(PAGE.read_text(encoding="utf-8")):
        if kind == "python":
            (tmp_path / "copy_rows.py").write_text(text)
        elif kind == "text":
            assert output == text
        else:
            done = subprocess.run(
                ["bash", "-ec", f"source .venv/bin/activate\n{text}"],
                cwd=tmp_path,
                check=False,
                env=environment,
                capture_output=True,
                text=True,
                timeout=300,
            )
            assert done.returncode == 0, done.stdout + done.stderr
            output = done.stdout
            if "kill -9" in text:
                stored = int(output.splitlines()[-1])
                assert 0 < stored < 300_000, "it was to be killed in the middle"
    assert "no problems" in output
    assert "no problems" in (tmp_path / "audit.html").read_text(encoding="utf-8")
    picture = (tmp_path / "killed.svg").read_text(encoding="utf-8")
    assert "answer held back" in picture
    assert len(picture) < PICTURE_BYTES_MAX
    if "TOUR_PICTURES" in os.environ:
        (Path(os.environ["TOUR_PICTURES"]) / PICTURE).write_text(picture, encoding="utf-8")
