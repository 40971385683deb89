"""Gets Kafka Connect, Kafka Streams and Kafka's tools from Maven Central into .cache, for tests/toolchain.py."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Final

from tests.support.tool import Tool, run

JARS: Final = Path(__file__).parents[2] / ".cache" / "applications"
_JAVA: Final = Path(__file__).parent / "java"
_STAMP: Final = JARS / "built-from"


def _sources() -> str:
    paths = sorted(path for path in _JAVA.rglob("*") if path.is_file())
    return "\n".join(path.read_text() for path in paths)


def _is_present() -> bool:
    return _STAMP.exists() and _STAMP.read_text() == _sources()


def _prepare() -> None:
    shutil.rmtree(JARS, ignore_errors=True)
    JARS.mkdir(parents=True)
    run(["mvn", "-q", "-B", "-f", str(_JAVA / "pom.xml"), "package", f"-Doutput={JARS}"])
    _STAMP.write_text(_sources())


TOOLS: Final = (
    Tool(
        name="applications",
        used_by="Kafka Connect, Kafka Streams and Kafka's tools as users of groups",
        is_present=_is_present,
        prepare=_prepare,
        needs=("java", "mvn"),
    ),
)
