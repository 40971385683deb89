"""The wheel works without the tree: what `pip install echoless[spark]` gives a user."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.server_process import ServerProcess
from tests.support.stored_values import read_stored_values

REPOSITORY = Path(__file__).parents[1]
READY = re.compile(r"^ready .*listen=(?P<listen>\S+)")
LINES = [f"{number:08} a line" for number in range(100)]

pytestmark = [pytest.mark.slow, pytest.mark.spark]


class Installation:
    """A virtual environment that has the wheel and its dependencies, and nothing of the tree."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.elsewhere = directory / "elsewhere"
        """The working directory of its programs, from which no package of the tree can be imported."""
        self.elsewhere.mkdir()

    def install(self) -> None:
        """Builds the wheel from the files that git tracks, and installs it with its extra."""
        source, wheels = self.directory / "source", self.directory / "wheels"
        tracked = run("git", "ls-files", "-z", directory=REPOSITORY).split("\0")
        for name in filter(None, tracked):
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            (source / name).write_bytes((REPOSITORY / name).read_bytes())
        pip = (sys.executable, "-m", "pip", "--disable-pip-version-check")
        run(*pip, "wheel", "-q", "--no-deps", "-w", str(wheels), str(source))
        run(sys.executable, "-m", "venv", str(self.directory / "venv"))
        (wheel,) = wheels.glob("echoless-*.whl")
        run(self.program("python"), "-m", "pip", "install", "-q", f"{wheel}[spark]")

    def uncompiled(self, package: str) -> list[Path]:
        """The modules of an installed package that every start would compile, if its files are read-only."""
        (directory,) = self.directory.glob(f"venv/lib/python*/site-packages/{package}")
        return [
            path
            for path in directory.rglob("*.py")
            if not Path(importlib.util.cache_from_source(str(path))).exists()
        ]

    def program(self, name: str) -> str:
        return str(self.directory / "venv" / "bin" / name)

    def run(self, name: str, *arguments: str) -> str:
        """Runs one of its programs; returns its output."""
        return run(self.program(name), *arguments, directory=self.elsewhere)


def run(*command: str, directory: Path | None = None) -> str:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    ended = subprocess.run(
        command, capture_output=True, text=True, cwd=directory, env=environment, check=False
    )
    assert ended.returncode == 0, f"{command}\n{ended.stdout}\n{ended.stderr}"
    return ended.stdout


@pytest.fixture(scope="module")
def installation(tmp_path_factory: pytest.TempPathFactory) -> Installation:
    installed = Installation(tmp_path_factory.mktemp("wheel"))
    installed.install()
    return installed


@pytest.fixture
def broker_address(installation: Installation, tmp_path: Path) -> Iterator[str]:
    """A broker run by the installed command."""
    broker = ServerProcess(READY, tmp_path / "echoless.log")
    ports = [f"--{name}=127.0.0.1:0" for name in ("listen", "native-listen", "admin-listen")]
    data_dir = f"--data-dir={tmp_path / 'data'}"
    ready = broker.start([installation.program("echoless"), "serve", *ports, data_dir])
    yield ready["listen"]
    broker.terminate()


def test_the_installed_command_knows_its_version(installation: Installation) -> None:
    """The version of `pyproject.toml`, which the change log describes."""
    printed = installation.run("echoless", "--version").split()
    assert printed[0] == "echoless"
    changes = (REPOSITORY / "CHANGELOG.md").read_text(encoding="utf-8")
    assert f"\n## {printed[1]} " in changes


@pytest.mark.parametrize(
    "package", ["broker", "cli", "coordinators", "diagram", "protocol", "storage"]
)
def test_every_module_is_compiled(installation: Installation, package: str) -> None:
    """A server whose user may not write there would compile them at each start."""
    assert installation.uncompiled(package) == []


def test_the_wheel_has_the_console(installation: Installation) -> None:
    """Its files are no modules: they have to be named as data of their package."""
    listing = "from importlib.resources import files; print(*[one.name for one in (files('echoless.broker.admin') / 'console').iterdir()])"
    installed = set(installation.run("python", "-c", listing).split())
    tracked = run("git", "ls-files", "broker/admin/console", directory=REPOSITORY).split()
    assert {Path(name).name for name in tracked} == installed


def test_the_demo_runs_from_the_wheel(installation: Installation) -> None:
    """Without idempotence records are stored twice, with it none."""
    printed = installation.run("echoless", "demo")
    (duplicates,) = re.findall(r"duplicates\W+(\d+)\W+(\d+)", printed)
    assert int(duplicates[0]) > 0
    assert int(duplicates[1]) == 0


def test_the_example_of_the_sink_runs_from_the_wheel(
    installation: Installation, broker_address: str, tmp_path: Path
) -> None:
    """The first program of `docs/sink.md`, with Spark's workers in the installed environment."""
    page = (REPOSITORY / "docs/sink.md").read_text(encoding="utf-8")
    example = re.findall(r"```python\n(.*?)```", page, re.DOTALL)[0]
    (tmp_path / "orders").mkdir()
    (tmp_path / "orders" / "lines.txt").write_text("\n".join(LINES))
    program = example.replace("127.0.0.1:9092", broker_address)
    program = program.replace('"/data/', f'"{tmp_path}/')
    installation.run("python", "-c", program)
    (stored,) = read_stored_values(broker_address, "orders", 1)
    assert sorted(str(value, "utf-8") for value in stored) == LINES
