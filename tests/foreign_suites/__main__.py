"""`python -m tests.foreign_suites kafka-python`: runs the integration suite of another project against a broker.

Its sources and tools are put into `.cache/foreign-suites` first. The exit status is 1 if a test fails that
`docs/foreign-suites.md` does not list, or if one that is listed passes.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Final

from tests.foreign_suites.suite import Suite, missed, outcomes, run, surprises
from tests.foreign_suites.suites import SUITES
from tests.support.echoless import Echoless

_INSIDE: Final = "FOREIGN_SUITE_INSIDE"
"""Set in a process that has a network of its own."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.foreign_suites", description=__doc__)
    parser.add_argument("suite", choices=list(SUITES))
    suite = SUITES[parser.parse_args().suite]
    if not suite.directory.exists():
        _prepare(suite)
    if suite.needs_own_network and _INSIDE not in os.environ:
        command = 'ip link set lo up && exec "$@"'
        again = [
            "sh",
            "-c",
            command,
            "sh",
            sys.executable,
            "-m",
            "tests.foreign_suites",
            suite.name,
        ]
        inside = {**os.environ, _INSIDE: suite.name}
        return subprocess.run(["unshare", "--net", *again], env=inside, check=False).returncode
    output = _run(suite)
    found = outcomes(suite, output)
    problems = surprises(found, missed(suite.name)) if found else [output[-2000:]]
    for problem in problems:
        print(f"{suite.name}: {problem}")
    print(
        f"{suite.name} {suite.version}: {dict(Counter(found.values()))}; the output is in {_log(suite)}"
    )
    return int(bool(problems))


def _prepare(suite: Suite) -> None:
    """In a directory of its own, which takes the name of the suite once it is whole."""
    suite.directory.parent.mkdir(parents=True, exist_ok=True)
    directory = Path(tempfile.mkdtemp(dir=suite.directory.parent))
    try:
        suite.prepare(directory)
        directory.rename(suite.directory)
    except BaseException:
        shutil.rmtree(directory)
        raise


def _run(suite: Suite) -> str:
    with tempfile.TemporaryDirectory(prefix="foreign-suite-") as directory:
        broker = Echoless(Path(directory), suite.settings, arguments=suite.arguments)
        broker.kafka_address = suite.listen
        broker.start()
        try:
            command = suite.command(suite.directory, broker.kafka_address)
            environment = {**os.environ, **suite.environment}
            output = run(command, suite.directory / "sources", environment)
        finally:
            broker.terminate()
    _log(suite).write_text(output)
    return output


def _log(suite: Suite) -> Path:
    return suite.directory.parent / f"{suite.name}.log"


if __name__ == "__main__":
    sys.exit(main())
