"""Anything that keeps a broker from starting is reported in one line, with its exit code."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.hostile.target import assert_quiet_log
from tests.hostile.tmpfs import mounted_tmpfs
from tests.support.echoless import Echoless

pytestmark = pytest.mark.slow

ANY_PORT = ("--listen", "--native-listen", "--admin-listen")


def run(data_dir: Path, *arguments: str) -> tuple[int, str]:
    """The exit code and the last line of a broker that is not to start."""
    ports = [part for name in ANY_PORT for part in (name, "127.0.0.1:0")]
    command = [
        sys.executable,
        "-m",
        "echoless.broker",
        *ports,
        "--data-dir",
        str(data_dir),
        *arguments,
    ]
    result = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert result.stdout == ""
    assert "Traceback" not in result.stderr
    return result.returncode, result.stderr.splitlines()[-1]


def test_a_data_directory_that_is_a_file(tmp_path: Path):
    """Exit 1, and the path."""
    path = tmp_path / "file"
    path.write_bytes(b"mine")
    code, line = run(path)
    assert code == 1
    assert str(path) in line
    assert path.read_bytes() == b"mine"


def test_a_second_broker_is_told_who_holds_the_directory(start_echoless):
    """Exit 1 naming the holder, who does not notice."""
    first: Echoless = start_echoless()
    code, line = run(first.data_dir)
    assert code == 1
    assert f"locked by broker 1, process {first.process.pid}" in line
    assert first.terminate() == 0


def test_a_port_in_use(echoless: Echoless, tmp_path: Path):
    """Exit 1, one line: option, address and reason."""
    code, line = run(tmp_path / "other", "--listen", echoless.kafka_address)
    assert code == 1
    assert f"listen: cannot listen on {echoless.kafka_address}: Address already in use" in line


def test_the_directory_of_another_broker(echoless: Echoless):
    """Exit 1: whose it is, and that nothing of it was touched."""
    assert echoless.terminate() == 0
    code, line = run(echoless.data_dir, "--broker-id", "7")
    assert code == 1
    assert "belongs to broker 1, not 7" in line
    echoless.start()


@pytest.mark.parametrize(
    "argument", ["nonsense=1", "log_segment_bytes=abc", "connections_max=0", "data_dir=", "x"]
)
def test_a_bad_configuration(tmp_path: Path, argument: str):
    """Exit 2, one line that names the option."""
    code, line = run(tmp_path / "data", "--set", argument)
    assert code == 2
    assert line.startswith("echoless serve: ")
    assert argument.partition("=")[0] in line
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("meta.properties", b"\xff\xfe nonsense"),
        ("recovery-point-offset-checkpoint", b"nonsense\n"),
        ("coordination.sqlite", b"nonsense" * 1000),
    ],
)
def test_a_damaged_file_is_named(start_echoless, name: str, data: bytes):
    """Exit 1 and the path, for damage that no power failure explains."""
    broker: Echoless = start_echoless()
    assert broker.terminate() == 0
    (broker.data_dir / name).write_bytes(data)
    for journal in broker.data_dir.glob("coordination.sqlite-*"):
        journal.unlink()
    code, line = run(broker.data_dir)
    assert code == 1
    assert name in line
    assert_quiet_log(broker)


@pytest.mark.parametrize("options", ["size=32k", "size=1m,ro"], ids=["full", "read-only"])
def test_a_disk_that_takes_nothing(tmp_path: Path, options: str):
    """Exit 1, the path and the reason of the system."""
    with mounted_tmpfs(tmp_path / "disk", options) as disk:
        if "ro" not in options:
            (disk / "ballast").write_bytes(bytes(32 * 1024))
        code, line = run(disk / "data")
    assert code == 1
    assert re.search(r"/disk/data.*(No space left on device|Read-only file system)", line)
