"""The drivers of clients in other languages, for tests/toolchain.py: built once for their sources."""

from __future__ import annotations

from testkit.clients.build import Build, BuildError
from testkit.clients.programs import PROGRAMS
from tests.support.tool import Tool, ToolError


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


TOOLS = tuple(_driver(program.build) for program in PROGRAMS.values() if program.build is not None)
NAMES = tuple(tool.name for tool in TOOLS)
"""The tools that every test with all clients requires."""
