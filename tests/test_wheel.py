"""Wheel and sdist work without the tree, in any project: what `pip install echoless[spark]` gives a user.

The programs run in a project that has folders with the names of all our rooms, none of which can be imported.
"""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.api_page import PUBLIC
from tests.support.echoless import REPOSITORY, SOURCES
from tests.support.installation import Distributions, Installation, run
from tests.support.server_process import ServerProcess
from tests.support.stored_values import read_stored_values

READY = re.compile(r"^ready .*listen=(?P<listen>\S+)")
LINES = [f"{number:08} a line" for number in range(100)]
ROOMS = sorted(path.name for path in (SOURCES / "echoless").iterdir() if path.is_symlink())
PRODUCE_ORDERS = '''
from echoless import Producer, Settings


def produce_orders(servers: str) -> list[str]:
    """Retries soon after an acknowledgement is lost."""
    sent = [f"order {number}" for number in range(100)]
    with Producer(servers, Settings(request_timeout_s=0.5)) as producer:
        for order in sent:
            producer.send("orders", order.encode(), partition=0)
    return sent


'''
EVERY_NAME = f"""
from importlib import import_module
names = [(module, name) for module in map(import_module, {PUBLIC}) for name in module.__all__]
assert all(getattr(module, name) is not None for module, name in names)
print(*{{module.__file__ for module, _ in names}})
"""
TYPED = """\
from echoless import OutputRecord, Prodcer, Producer, Settings
from echoless.spark import ExactlyOnceSink
from echoless.testing import Echoless


def test_orders(echoless: Echoless) -> None:
    with Producer(echoless.bootstrap_servers, Settings(in_flight_max=3)) as producer:
        reveal_type(producer.send("orders", b"one", partition=0).result().offset)
        producer.send("orders", "one", partition=0)
    reveal_type(OutputRecord("orders", 0, b"one").key)
    ExactlyOnceSink(9092)
"""
SAID_OF_TYPES = [
    '1: error: Module "echoless" has no attribute "Prodcer"; maybe "Producer"?  [attr-defined]',
    '8: note: Revealed type is "int | None"',
    '9: error: Argument 2 to "send" of "Producer" has incompatible type "str"; expected "bytes | None"  [arg-type]',
    '10: note: Revealed type is "bytes | None"',
    '11: error: Argument 1 to "ExactlyOnceSink" has incompatible type "int"; expected "str | Mapping[str, str]"  [arg-type]',
]

pytestmark = [pytest.mark.slow, pytest.mark.spark]


@pytest.fixture(scope="module")
def distributions(tmp_path_factory: pytest.TempPathFactory) -> Distributions:
    return Distributions.build(tmp_path_factory.mktemp("distributions"))


@pytest.fixture(scope="module")
def wheel(distributions: Distributions, tmp_path_factory: pytest.TempPathFactory) -> Installation:
    directory = tmp_path_factory.mktemp("wheel") / "venv"
    return Installation(directory, distributions.wheel, extras="spark", others=["pytest"])


@pytest.fixture(scope="module")
def sdist(distributions: Distributions, tmp_path_factory: pytest.TempPathFactory) -> Installation:
    """Has the wheel that is made of the sdist."""
    directory = tmp_path_factory.mktemp("sdist") / "venv"
    return Installation(directory, distributions.wheel_of_sdist, extras="spark", others=["pytest"])


@pytest.fixture(params=["wheel", "sdist"])
def installation(request: pytest.FixtureRequest) -> Installation:
    installed: Installation = request.getfixturevalue(request.param)
    return installed


@pytest.fixture(params=["", "."], ids=["", "PYTHONPATH=."])
def python_path(request: pytest.FixtureRequest) -> str:
    path: str = request.param
    return path


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """The working directory of the programs: a project with folders of our rooms' names."""
    directory = tmp_path / "project"
    for name in ROOMS:
        (directory / name).mkdir(parents=True)
        (directory / name / "__init__.py").write_text(
            f"raise AssertionError('the project: {name}')"
        )
    return directory


@pytest.fixture
def broker_address(
    installation: Installation, python_path: str, project: Path, tmp_path: Path
) -> Iterator[str]:
    """A broker run by the installed command, in the project."""
    broker = ServerProcess(READY, tmp_path / "echoless.log")
    broker.prefix = ("env", "-C", str(project))
    ports = [f"--{name}=127.0.0.1:0" for name in ("listen", "native-listen", "admin-listen")]
    command = [installation.program("echoless"), "serve", *ports, f"--data-dir={tmp_path / 'data'}"]
    yield broker.start(command, environment={"PYTHONPATH": python_path})["listen"]
    broker.terminate()


def test_a_distribution_has_one_top_level_name(distributions: Distributions) -> None:
    """`echoless`, with every module of the tree, plain files in the place of links; both wheels are the same."""
    wheels = [
        {file.filename: file.CRC for file in zipfile.ZipFile(one).infolist()}
        for one in (distributions.wheel, distributions.wheel_of_sdist)
    ]
    assert wheels[0] == wheels[1]
    assert {name.split("/")[0].partition("-")[0] for name in wheels[0]} == {"echoless"}
    tracked = run("git", "ls-files", *(f"{room}/*.py" for room in ROOMS), directory=REPOSITORY)
    assert {f"echoless/{name}" for name in tracked.split()} <= wheels[0].keys()
    with tarfile.open(distributions.sdist) as archive:
        names = [name.partition("/")[2] for name in archive.getnames()]
    assert {name.split("/")[1] for name in names if name.startswith("src/")} == {
        *("echoless", "echoless.egg-info")
    }
    top = {name.split("/")[0] for name in names if name}
    assert top == {"MANIFEST.in", "PKG-INFO", "README.md", "pyproject.toml", "setup.cfg", "src"}


def test_the_installed_command_knows_its_version(
    installation: Installation, python_path: str, project: Path
) -> None:
    """The version of `pyproject.toml`, which the change log describes."""
    command = (installation.program("echoless"), "--version")
    printed = run(*command, directory=project, python_path=python_path).split()
    assert printed[0] == "echoless"
    changes = (REPOSITORY / "CHANGELOG.md").read_text(encoding="utf-8")
    assert f"\n## {printed[1]} " in changes


def test_every_module_is_compiled(wheel: Installation) -> None:
    """A server whose user may not write there would compile them at each start."""
    uncompiled = [
        path
        for path in (wheel.packages / "echoless").rglob("*.py")
        if not Path(importlib.util.cache_from_source(str(path))).exists()
    ]
    assert uncompiled == []


def test_the_wheel_has_the_console(wheel: Installation) -> None:
    """Its files are no modules: they have to be named as data of their package."""
    installed = {path.name for path in (wheel.packages / "echoless/broker/admin/console").iterdir()}
    tracked = run("git", "ls-files", "broker/admin/console", directory=REPOSITORY).split()
    assert {Path(name).name for name in tracked} == installed


def test_the_demo_runs_from_the_wheel(wheel: Installation, project: Path) -> None:
    """Without idempotence records are stored twice, with it none."""
    printed = run(wheel.program("echoless"), "demo", directory=project, python_path=".")
    (duplicates,) = re.findall(r"duplicates\W+(\d+)\W+(\d+)", printed)
    assert int(duplicates[0]) > 0
    assert int(duplicates[1]) == 0


def test_the_fixture_runs_in_the_project(
    installation: Installation, python_path: str, project: Path
) -> None:
    """The README's test, by `python -m pytest`, which puts the project first on the path."""
    readme = (REPOSITORY / "README.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"```python\n(def test_.*?)```", readme, re.DOTALL)
    (project / "test_orders.py").write_text(PRODUCE_ORDERS + example)
    command = (installation.program("python"), "-m", "pytest", "-q")
    assert "1 passed" in run(*command, directory=project, python_path=python_path)


def test_every_public_name_is_there(
    installation: Installation, python_path: str, project: Path
) -> None:
    """Each is imported, from the installed package."""
    command = (installation.program("python"), "-c", EVERY_NAME)
    files = run(*command, directory=project, python_path=python_path).split()
    assert len(files) == len(PUBLIC)
    assert all(Path(one).is_relative_to(installation.packages) for one in files)


@pytest.mark.parametrize(
    ("installation", "python_path"), [("wheel", "."), ("sdist", "")], indirect=True
)
def test_the_examples_of_the_sink_run(
    installation: Installation,
    python_path: str,
    project: Path,
    broker_address: str,
    tmp_path: Path,
) -> None:
    """The first two programs of `docs/sink.md`, with the installed environment activated, as the page asks.

    A quarter of a minute each, so not all four: the wheels are the same, byte for byte.
    """
    page = (REPOSITORY / "docs/sink.md").read_text(encoding="utf-8")
    (tmp_path / "orders").mkdir()
    (tmp_path / "orders" / "lines.txt").write_text("\n".join(LINES))
    program = "\n".join(re.findall(r"```python\n(.*?)```", page, re.DOTALL)[:2])
    program = program.replace("127.0.0.1:9092", broker_address)
    program = program.replace('"/data/', f'"{tmp_path}/')
    python = installation.program("python")
    activated = f"PATH={Path(python).parent}{os.pathsep}{os.environ['PATH']}"
    run("env", activated, python, "-c", program, directory=project, python_path=python_path)
    (stored,) = read_stored_values(broker_address, "orders", 1)
    assert sorted(str(value, "utf-8") for value in stored) == sorted(LINES * 2)


def test_type_checkers_see_the_types(wheel: Installation, project: Path, tmp_path: Path) -> None:
    """mypy strict infers what a program gets, and finds a wrong argument and a name that is not there."""
    (project / "program.py").write_text(TYPED)
    mypy = (sys.executable, "-m", "mypy", "--strict", "--no-pretty", "--no-error-summary")
    options = ("--python-executable", wheel.program("python"), f"--cache-dir={tmp_path / 'cache'}")
    checked = subprocess.run(
        [*mypy, *options, "program.py"], cwd=project, capture_output=True, text=True, check=False
    )
    said = [line.partition(":")[2] for line in checked.stdout.splitlines()]
    assert said == SAID_OF_TYPES, checked.stderr


def test_without_the_extra_it_is_named(
    distributions: Distributions, project: Path, tmp_path: Path
) -> None:
    """In one line each; what needs no Spark works."""
    bare = Installation(tmp_path / "venv", distributions.wheel)
    python = bare.program("python")
    job = subprocess.run(
        [python, "-m", "echoless.spark", "mirror"], cwd=project, capture_output=True, check=False
    )
    remedy = "needs pyspark: pip install 'echoless[spark]'"
    assert (job.returncode, job.stderr.decode()) == (1, f"python -m echoless.spark {remedy}\n")
    program = (
        "import echoless.spark\ntry: echoless.spark.register\nexcept ImportError as e: print(e)"
    )
    assert run(python, "-c", program, directory=project) == f"echoless.spark.register {remedy}\n"
    run(python, "-c", "from echoless import Copier, Producer", directory=project)
    run(python, "-m", "echoless", "serve", "--help", directory=project)
