"""The drivers of clients in other languages, built once for their sources, and the scenarios' ZooKeeper, for tests/toolchain.py."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from echoless.testkit.clients.build import Build, BuildError
from echoless.testkit.clients.programs import FURTHER, PROGRAMS, Program
from echoless.testkit.zookeeper_process import has_jars
from tests.support.tool import Tool, ToolError, run

_JUNIT: Final = "1.11.4"


def _driver(build: Build) -> Tool:
    def prepare() -> None:
        try:
            build.make()
        except BuildError as error:
            raise ToolError(str(error)) from error

    return Tool(
        name=f"driver-{build.name}",
        used_by="the scenarios and the soak with real clients",
        is_present=lambda: build.is_there,
        prepare=prepare,
        needs=build.tools,
    )


JUNIT_JAR: Final = (
    Path(__file__).parents[2]
    / ".cache"
    / "junit"
    / f"junit-platform-console-standalone-{_JUNIT}.jar"
)


def _fetch_junit() -> None:
    artifact = f"org.junit.platform:junit-platform-console-standalone:{_JUNIT}"
    where = f"-DoutputDirectory={JUNIT_JAR.parent.resolve()}"
    run(["mvn", "-q", "-B", "dependency:copy", f"-Dartifact={artifact}", where])


def _no_jars() -> None:
    raise ToolError("they come with PySpark: pip install 'echoless[spark]'")


_DRIVERS = [_driver(program.build) for program in PROGRAMS.values() if program.build is not None]
NAMES = tuple(tool.name for tool in _DRIVERS)
"""The tools that every test with all clients requires."""
_FURTHER = [_driver(program.build) for program in FURTHER.values() if program.build is not None]
ZOOKEEPER = Tool(
    name="pyspark-zookeeper",
    used_by="the scenarios with several brokers",
    is_present=has_jars,
    prepare=_no_jars,
    needs=("java",),
)
"""ZooKeeper's jars in PySpark, which `echoless.testkit.scenarios` starts."""
_JUNIT_TOOL = Tool(
    name="junit",
    used_by="the example in Java of docs/testing.md",
    is_present=JUNIT_JAR.exists,
    prepare=_fetch_junit,
    needs=("java", "mvn"),
)
TOOLS = (*_DRIVERS, *_FURTHER, ZOOKEEPER, _JUNIT_TOOL)


def tool_of(program: Program) -> tuple[str, ...]:
    """The tools that a test with this client requires."""
    return () if program.build is None else (f"driver-{program.build.name}",)
