"""The image itself: its size, what is in it, and that nothing is missing in it that a command needs."""

from __future__ import annotations

import ast
import os
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from containers.image_files import ABSENT
from containers.images import DEBIAN, ECHOLESS
from containers.podman import REPOSITORY, Container, image_size, podman
from echoless.broker.handlers.apis import APIS
from echoless.cli.commands import COMMANDS
from tests.import_doors import ROOMS

RunBroker = Callable[..., Container]

ADDED_BYTES_MAX: Final = 50_000_000
START_PROCESSOR_S_MAX: Final = 1.0
_NOT_IN_THE_IMAGE: Final = (
    "echoless.pipeline",  # Spark's part
    *("confluent_kafka", "kafka"),  # clients of some scenarios
    *("cryptography", "jwt", "numpy", "obstore", "pyarrow", "trustme"),  # of extras
)
_FIND: Final = """
import sys
from importlib.util import find_spec
for name in sys.stdin.read().split():
    try:
        found = find_spec(name)
    except ModuleNotFoundError:
        found = None
    if found is None:
        print(name)
"""
_COMMANDS: Final = """\
printf 'a\\nb\\n' | echoless produce t
echoless topics create u --partitions 2
echoless topics describe t
echoless topics alter t --config retention.ms=100000
echoless consume t --count 2
echoless producers t
echoless decisions
echoless trace
echoless brokers 1
echoless features describe
echoless groups list
echoless listeners list
echoless transactions list
echoless users list
echoless faults list
echoless demo
echoless record --for 3 run.jsonl & while kill -0 $!; do echo c | echoless produce t; done; wait $!
echoless trace run.jsonl
echoless replay run.jsonl
echoless scenario run missing-acknowledgements
echoless topics delete u
"""
_OFFLINE: Final = """\
echoless verify /data
echoless dump /data/t-0
echoless strays list /data
"""


def test_it_adds_at_most_50_megabytes_to_debian() -> None:
    """Python, OpenSSL and SQLite included; `python -m containers.shares` lists the parts."""
    assert image_size(ECHOLESS) - image_size(DEBIAN) <= ADDED_BYTES_MAX


def test_every_import_is_found() -> None:
    """Imports of every file in the image, at its head or inside a function; and kio's classes of what is served."""
    own, wanted = set[str](), set[str]()
    absent = ABSENT["site-packages"].split()
    for path in _sources():
        module = ".".join(("echoless", *path.relative_to(REPOSITORY).with_suffix("").parts))
        module = module.removesuffix(".__init__")
        if module.replace(".", "/") + ".py" not in absent:
            own.add(module)
            wanted |= _imports(path, module)
    wanted |= {
        f"kio.schema.{api.name}.v{version}.{kind}"
        for api in APIS
        for version in range(api.version_min, api.version_max + 1)
        for kind in ("request", "response")
    }
    assert len(own) > 500
    names = " ".join(own | wanted).encode()
    run = ("run", "--rm", "--interactive", "--entrypoint", "python3", ECHOLESS, "-c", _FIND)
    missing = podman(*run, stdin=names).split()
    assert [name for name in missing if not name.startswith(_NOT_IN_THE_IMAGE)] == []


def _sources() -> Iterator[Path]:
    for room in ROOMS:
        if room != "pipeline":
            yield from (REPOSITORY / room).rglob("*.py")


def _imports(path: Path, module: str) -> set[str]:
    """The modules that a file imports, save those for type checking only."""
    found = set()
    nodes: list[ast.AST] = [ast.parse(path.read_text())]
    while nodes:
        node = nodes.pop()
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            nodes += node.orelse
            continue
        nodes += ast.iter_child_nodes(node)
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module}: a relative import"
            assert node.module is not None
            found.add(node.module)
    return found


def test_every_command_works(run_broker: RunBroker) -> None:
    """Commands beside a broker on a read-only image, and those for the data of one that has ended."""
    broker = run_broker("--read-only", "--env", "ECHOLESS_ALLOW_FAULTS=true")
    _run_each(broker.name, [f"echoless {name} --help" for name in COMMANDS])
    _run_each(broker.name, _COMMANDS.splitlines())
    broker.stop()
    options = ("--rm", "--volumes-from", broker.name, "--entrypoint", "sh")
    for line in _OFFLINE.splitlines():
        podman("run", *options, ECHOLESS, "-ec", line)


def _run_each(name: str, lines: list[str]) -> None:
    """Runs lines in one shell, which ends with the first that fails; the error holds the end of its output."""
    script = "\n".join(f"echo : {shlex.quote(line)}\n{line}" for line in lines)
    podman("exec", "--env", "TMPDIR=/data", name, "bash", "-eo", "pipefail", "-c", script)


def test_it_starts_with_less_than_a_second_of_work(run_broker: RunBroker) -> None:
    """Measures the processor time of all threads, until the ready line has been seen; a clock would measure the machine's load."""
    broker = run_broker("--read-only")
    numbers = Path(f"/proc/{broker.process_id}/stat").read_text().rpartition(")")[2].split()
    spent_s = (int(numbers[11]) + int(numbers[12])) / os.sysconf("SC_CLK_TCK")
    assert 0 < spent_s < START_PROCESSOR_S_MAX
