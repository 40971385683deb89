"""Consume, transform, produce with Java, while the broker is killed: records and offsets are committed together."""

from __future__ import annotations

import subprocess
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.compatibility.programs import BUILT, JAVA_VERSIONS
from tests.support.echoless import Echoless
from tests.toolchain import require
from tests.transactions.copied import GROUP, INPUTS, OUTPUTS, PARTITIONS, RECORDS, fill, read_all

pytestmark = [pytest.mark.slow, pytest.mark.crash, pytest.mark.clients]

PROGRAM = Path(__file__).parent / "java" / "Copy.java"
KILLED_AT = ("records 1", "records 4", "offsets 7", "offsets 10")
"""Words of the copier at which the broker is killed, with their count: what they name is in an open transaction."""
ABORTED_AT = ("offsets 3", "offsets 7")


@pytest.mark.time_limit(150)
@pytest.mark.parametrize("version", JAVA_VERSIONS)
def test_every_record_is_copied_once(
    start_echoless: Callable[..., Echoless], tmp_path: Path, version: str
) -> None:
    """Killed with records only, and with offsets, in an open transaction, and aborted: committed records are there once each."""
    require("java", f"java-client-{version}")
    broker = start_echoless()
    values = fill(broker.kafka_address)
    said = tmp_path / "copier.log"
    with (
        said.open("w") as log,
        subprocess.Popen(
            command(version, broker.kafka_address),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        ) as copier,
    ):
        try:
            seen = direct(copier, broker)
        finally:
            copier.kill()
    assert {*KILLED_AT, *ABORTED_AT} <= seen, said.read_text()[-4000:]
    assert Counter(read_all(broker.kafka_address, "read_committed")) == Counter(values)
    assert Counter(read_all(broker.kafka_address, "read_uncommitted")) > Counter(values)


def direct(copier: subprocess.Popen[str], broker: Echoless) -> set[str]:
    """Answers the copier until it is done, and kills the broker meanwhile; returns the words that were counted."""
    assert copier.stdin is not None
    assert copier.stdout is not None
    counts: Counter[str] = Counter()
    seen: set[str] = set()
    for line in copier.stdout:
        word = line.split()[0]
        counts[word] += 1
        place = f"{word} {counts[word]}"
        seen.add(place)
        if word == "done":
            break
        if place in KILLED_AT:
            broker.kill()
            broker.start()
        print("abort" if place in ABORTED_AT else "go", file=copier.stdin, flush=True)
    assert counts["done"] == 1
    return seen


def command(version: str, bootstrap: str) -> list[str]:
    """The copier, which Java compiles as it starts."""
    return [
        "java",
        *("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto"),
        "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
        *("-cp", f"{BUILT}/java-{version}/*", str(PROGRAM)),
        *(bootstrap, INPUTS, OUTPUTS, GROUP, str(PARTITIONS), str(RECORDS)),
    ]
