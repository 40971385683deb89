"""The tests of `docs/testing.md` in seven clients, run as they stand there."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from echoless.testkit.clients.build import GO, NODE, SARAMA, Build
from echoless.testkit.clients.programs import PROGRAMS
from echoless.testkit.echoless import Echoless
from tests.testkit.tools import JUNIT_JAR
from tests.toolchain import require

pytest_plugins = ["pytester"]
pytestmark = [pytest.mark.slow, pytest.mark.clients]

_ROOT = Path(__file__).parents[2]
_HEADING = "## The same test in seven clients"
_WITHIN_S = 120


@pytest.fixture(scope="module")
def environment() -> Iterator[dict[str, str]]:
    """The variables by which the examples find a broker."""
    with Echoless() as echoless:
        places = {
            "BOOTSTRAP": echoless.bootstrap_servers,
            "ADMIN": f"http://{echoless.broker.admin}",
        }
        yield {**os.environ, **places}


def _example(client: str) -> str:
    """The code below the client's heading."""
    section = (_ROOT / "docs" / "testing.md").read_text().split(_HEADING)[1]
    of_client = section.split(f"### {client}\n")[1]
    found = re.search(r"^```\w+\n(.*?)^```$", of_client, re.MULTILINE | re.DOTALL)
    assert found is not None
    return found[1]


def _passes(command: list[str], directory: Path, environment: dict[str, str], said: str) -> None:
    ran = subprocess.run(
        command,
        check=False,
        cwd=directory,
        env=environment,
        capture_output=True,
        text=True,
        timeout=_WITHIN_S,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert said in ran.stdout, ran.stdout


@pytest.mark.parametrize("client", ["librdkafka", "aiokafka", "kafka-python"])
def test_the_example_in_python_passes(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, client: str
) -> None:
    """It counts the lost acknowledgement itself."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    pytester.makepyfile(_example(client))
    result = pytester.runpytest_subprocess("-p", "echoless.testkit.plugin")
    result.assert_outcomes(passed=1)


def test_the_example_in_java_passes(environment: dict[str, str], tmp_path: Path) -> None:
    """With JUnit's own console, and the newest kafka-clients that the suite knows."""
    java = PROGRAMS["java-4"].build
    assert java is not None
    require("junit", f"driver-{java.name}")
    (tmp_path / "LostAcknowledgementTest.java").write_text(_example("Java"))
    jars = [JUNIT_JAR, *sorted(java.directory.glob("*.jar"))]
    path = os.pathsep.join(map(str, [*jars, tmp_path]))
    compile_it = ["javac", "-cp", path, "LostAcknowledgementTest.java"]
    subprocess.run(compile_it, cwd=tmp_path, check=True, timeout=_WITHIN_S)
    console = "org.junit.platform.console.ConsoleLauncher"
    run_it = ["java", "-cp", path, console, "execute", "--select-class", "LostAcknowledgementTest"]
    _passes(run_it, tmp_path, environment, "1 tests successful")


@pytest.mark.parametrize(("client", "build"), [("franz-go", GO), ("sarama", SARAMA)])
def test_the_example_in_go_passes(
    environment: dict[str, str], tmp_path: Path, client: str, build: Build
) -> None:
    """In a module with the versions of the suite's own driver; sarama's shares `ask` with franz-go's."""
    require(f"driver-{build.name}")
    sources = _ROOT / "testkit" / "clients" / build.language
    for name in ("go.mod", "go.sum"):
        (tmp_path / name).write_text((sources / name).read_text())
    (tmp_path / "shop_test.go").write_text(_example(client))
    if client == "sarama":
        (tmp_path / "ask_test.go").write_text(_ask_in_go())
    _passes(["go", "test", "-v", "-mod=mod", "."], tmp_path, environment, "--- PASS")


def _ask_in_go() -> str:
    imports = ("io", "net/http", "os", "strings", "testing")
    function = "func ask(" + _example("franz-go").split("func ask(")[1]
    return "package shop\n\n" + "".join(f'import "{one}"\n' for one in imports) + function


def test_the_example_in_javascript_passes(environment: dict[str, str], tmp_path: Path) -> None:
    """With Node's own test runner."""
    require(f"driver-{NODE.name}")
    (tmp_path / "node_modules").symlink_to(NODE.directory / "node_modules")
    (tmp_path / "shop.test.js").write_text(_example("kafkajs"))
    _passes(["node", "--test", "shop.test.js"], tmp_path, environment, "pass 1")
