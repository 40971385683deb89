"""Builds the client programs of other languages into .cache/clients, for tests/toolchain.py.

Each is built again when its sources change: a file `built-from` beside it keeps their digest.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable
from pathlib import Path

from tests.compatibility.programs import BUILT, JAVA_VERSIONS
from tests.support.tool import Tool, run

_CLIENTS = Path(__file__).parent / "clients"


def _client(
    name: str, *, sources: str, output: str, needs: tuple[str, ...], build: Callable[[Path], None]
) -> Tool:
    directory, stamp = BUILT / output, BUILT / output / "built-from"

    def is_present() -> bool:
        return stamp.exists() and stamp.read_text() == _digest(_CLIENTS / sources)

    def prepare() -> None:
        shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir(parents=True)
        build(directory)
        stamp.write_text(_digest(_CLIENTS / sources))

    return Tool(
        name=name,
        used_by=f"the tests with real clients that run {name}",
        is_present=is_present,
        prepare=prepare,
        needs=needs,
    )


def _digest(directory: Path) -> str:
    sha = hashlib.sha256()
    for path in sorted(path for path in directory.rglob("*") if path.is_file()):
        sha.update(str(path.relative_to(directory)).encode() + b"\0" + path.read_bytes())
    return sha.hexdigest()


def _build_java(version: str, directory: Path) -> None:
    pom = str(_CLIENTS / "java" / "pom.xml")
    settings = [f"-Dkafka.version={version}", f"-Doutput={directory}"]
    run(["mvn", "-q", "-B", "-f", pom, "package", *settings])


def _build_go(directory: Path) -> None:
    run(
        ["go", "build", "-o", str(directory / "client-program"), "."],
        directory=str(_CLIENTS / "go"),
    )


def _build_node(directory: Path) -> None:
    shutil.copytree(_CLIENTS / "node", directory, dirs_exist_ok=True)
    run(["npm", "ci", "--no-audit", "--no-fund"], directory=str(directory))


TOOLS = (
    *(
        _client(
            f"java-client-{version}",
            sources="java",
            output=f"java-{version}",
            needs=("java", "mvn"),
            build=lambda directory, version=version: _build_java(version, directory),
        )
        for version in JAVA_VERSIONS
    ),
    _client("go-client", sources="go", output="go", needs=("go",), build=_build_go),
    _client("node-client", sources="node", output="node", needs=("node", "npm"), build=_build_node),
)
