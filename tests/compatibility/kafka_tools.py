"""Runs Apache Kafka's own command-line tools by their main classes, from the jars that tests have.

The shell scripts of the distribution only start these classes.
"""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

from tests.support import apache_kafka, quick_jvm

_JVM = ("-Xmx256m", *quick_jvm.BASE)
_TIMEOUT_S = 240
_SHOWN = 2000


def run_tool(
    main_class: str,
    *arguments: str,
    lines: Sequence[str] = (),
    jars: Path = apache_kafka.JARS,
) -> str:
    """The tool's output, given `lines` on its standard input; it has to succeed. `jars`: of another Kafka."""
    done = _done(main_class, arguments, lines, jars)
    assert done.returncode == 0, done.stdout[-_SHOWN:] + done.stderr[-_SHOWN:]
    return done.stdout


def refused_tool(main_class: str, *arguments: str) -> str:
    """All that a tool says that fails."""
    done = _done(main_class, arguments, (), apache_kafka.JARS)
    assert done.returncode != 0, done.stdout[-_SHOWN:]
    return done.stdout + done.stderr


def _done(
    main_class: str, arguments: Sequence[str], lines: Sequence[str], jars: Path
) -> subprocess.CompletedProcess[str]:
    archived = [v.class_archive.options() for v in apache_kafka.KafkaVersion if v.jars == jars]
    return subprocess.run(
        ["java", *_JVM, *sum(archived, ()), "-cp", f"{jars}/*", main_class, *arguments],
        input="".join(f"{line}\n" for line in lines),
        capture_output=True,
        text=True,
        timeout=_TIMEOUT_S,
        check=False,
    )
