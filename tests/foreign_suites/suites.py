"""The suites whose sources can be had with the clients of package registries: pip, and `go mod`."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

from tests.foreign_suites.suite import Suite
from tests.support.tool import run

_SERVICE: Final = '''\
"""Stands in for a file that the source distribution lacks: a broker that someone else has started."""


class ExternalService:
    def __init__(self, host, port):
        self.host, self.port = host, port

    def open(self):
        """Do nothing: it runs."""

    close = stop = dump_logs = open


class SpawnedService:
    def __init__(self, *arguments):
        raise RuntimeError("this would start Apache Kafka")
'''
_PYTHON_TOOLS: Final = (
    "pytest==9.2.0",
    "pytest-mock==3.17.0",
    "pytest-timeout==2.4.0",
    "py==1.11.0",
    "crc32c==2.9.post0",
    "lz4==4.4.5",
    "zstandard==0.25.0",
    "python-snappy==0.7.3",
)
_KAFKA_GO: Final = "github.com/segmentio/kafka-go"
_LEFT_OUT: Final = (
    "verify_offset_committed",
    "consumer_group_commits_on_close",
    "consumer_group_rebalance$",
)
"""Parts of one of its tests, for reasons that the page gives."""


def _prepare_kafka_python(directory: Path) -> None:
    package = f"kafka-python=={KAFKA_PYTHON.version}"
    run([sys.executable, "-m", "venv", str(directory / "venv")])
    pip = [str(directory / "venv" / "bin" / "python"), "-m", "pip", "-q"]
    run(
        [
            *pip,
            "download",
            "--no-deps",
            "--no-binary",
            "kafka-python",
            "-d",
            str(directory),
            package,
        ]
    )
    [archive] = directory.glob("*.tar.gz")
    run([*pip, "install", str(archive), *_PYTHON_TOOLS])
    shutil.unpack_archive(archive, directory)
    sources = directory / f"kafka_python-{KAFKA_PYTHON.version}"
    (sources / "test" / "__init__.py").touch()
    (sources / "test" / "service.py").write_text(_SERVICE)
    sources.rename(directory / "sources")


def _kafka_python(directory: Path, address: str) -> list[str]:
    return [
        *("env", f"KAFKA_URI=kafka://{address}", f"KAFKA_ROOT={directory}"),
        *(str(directory / "venv" / "bin" / "python"), "-m", "pytest", "-q", "-rA"),
        *("-p", "no:cacheprovider", "--show-capture=no", "--timeout=120", "test/integration"),
    ]


KAFKA_PYTHON: Final = Suite(
    name="kafka-python",
    version="3.0.12",
    settings={
        "num_partitions": "4",
        "group_min_session_timeout_ms": "1000",
        "authorizer": "acl",
        "super_users": "User:ANONYMOUS",
    },
    arguments=("--broker-id", "0"),
    prepare=_prepare_kafka_python,
    command=_kafka_python,
    environment={"KAFKA_VERSION": "4.1"},
    outcome=re.compile(
        r"^(?P<outcome>PASSED|FAILED|ERROR|SKIPPED) (?:\[\d+\] )?test/integration/(?P<test>\S+?)(?:: .*| - .*)?$",
        re.MULTILINE,
    ),
)


def _prepare_kafka_go(directory: Path) -> None:
    module = f"{_KAFKA_GO}@v{KAFKA_GO.version}"
    found = subprocess.run(
        ["go", "mod", "download", "-json", module], check=True, capture_output=True, cwd=directory
    )
    shutil.copytree(
        json.loads(found.stdout)["Dir"], directory / "sources", copy_function=shutil.copyfile
    )
    for path in (directory / "sources").rglob("*"):
        path.chmod(0o755 if path.is_dir() else 0o644)
    program = str(directory / "kafka-go.test")
    sources = str(directory / "sources")
    run(["go", "test", "-mod=mod", "-c", "-o", program, "."], directory=sources)


def _kafka_go(directory: Path, _: str) -> list[str]:
    program = str(directory / "kafka-go.test")
    skipped = f"TestReaderConsumerGroup/({'|'.join(_LEFT_OUT)})"
    return [program, "-test.v", "-test.timeout=30m", f"-test.skip={skipped}"]


KAFKA_GO: Final = Suite(
    name="kafka-go",
    version="0.4.51",
    settings={
        "message_max_bytes": "200000000",
        "request_size_max": "210000000",
        "listener_security_protocol_map": "PLAINTEXT:PLAINTEXT,EXTERNAL:SASL_PLAINTEXT",
        "sasl_enabled_mechanisms": "SCRAM-SHA-256,SCRAM-SHA-512",
        "authorizer": "acl",
        "super_users": "User:ANONYMOUS",
    },
    arguments=("--advertise", "localhost:9092,localhost:9093"),
    listen="127.0.0.1:9092,127.0.0.1:9093",
    needs_own_network=True,
    prepare=_prepare_kafka_go,
    command=_kafka_go,
    environment={"KAFKA_VERSION": "3.9.1", "KAFKA_SKIP_NETTEST": "1"},
    outcome=re.compile(r"^ *--- (?P<outcome>PASS|FAIL|SKIP): (?P<test>\S+) \(", re.MULTILINE),
)
SUITES: Final = {suite.name: suite for suite in (KAFKA_PYTHON, KAFKA_GO)}
