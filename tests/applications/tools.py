"""Gets Kafka Connect, Kafka Streams, Flink and Kafka's tools from Maven Central into .cache, for tests/toolchain.py."""

from __future__ import annotations

import shutil
from functools import partial
from pathlib import Path
from typing import Final

from tests.support.tool import Tool, run

_HERE: Final = Path(__file__).parent
_CACHE: Final = _HERE.parents[1] / ".cache"
JARS: Final = _CACHE / "applications"
STREAMS_4_JARS: Final = _CACHE / "streams-4"
FLINK_JARS: Final = _CACHE / "flink"


def _sources(project: Path) -> str:
    paths = sorted(path for path in project.rglob("*") if path.is_file())
    return "\n".join(path.read_text() for path in paths)


def _is_present(project: Path, jars: Path) -> bool:
    stamp = jars / "built-from"
    return stamp.exists() and stamp.read_text() == _sources(project)


def _prepare(project: Path, jars: Path) -> None:
    shutil.rmtree(jars, ignore_errors=True)
    jars.mkdir(parents=True)
    run(["mvn", "-q", "-B", "-f", str(project / "pom.xml"), "package", f"-Doutput={jars}"])
    (jars / "built-from").write_text(_sources(project))


def _built(name: str, used_by: str, project: Path, jars: Path) -> Tool:
    return Tool(
        name=name,
        used_by=used_by,
        is_present=partial(_is_present, project, jars),
        prepare=partial(_prepare, project, jars),
        needs=("java", "mvn"),
    )


TOOLS: Final = (
    _built(
        "applications",
        "Kafka Connect, Kafka Streams and Kafka's tools as users of groups",
        _HERE / "java",
        JARS,
    ),
    _built(
        "streams-4",
        "Kafka Streams 4, whose group protocol is not served",
        _HERE / "streams-4",
        STREAMS_4_JARS,
    ),
    _built("flink", "Apache Flink's exactly-once sink", _HERE / "flink", FLINK_JARS),
)
