"""Consume, transform, produce with Java, while the broker is killed: records and offsets are committed together."""

from __future__ import annotations

import itertools
import subprocess
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.compatibility.programs import BUILT, JAVA_VERSIONS
from tests.support.cluster import Cluster
from tests.support.echoless import Echoless
from tests.toolchain import require
from tests.transactions.copied import GROUP, INPUTS, OUTPUTS, PARTITIONS, RECORDS, fill, read_all

pytestmark = [pytest.mark.slow, pytest.mark.crash, pytest.mark.clients]

PROGRAM = Path(__file__).parent / "java" / "Copy.java"
KILLED_AT = ("records 1", "records 4", "offsets 7", "offsets 10")
"""Words of the copier at which the broker is killed, with their count: what they name is in an open transaction."""
ABORTED_AT = ("offsets 3", "offsets 7")


@pytest.mark.parametrize("version", JAVA_VERSIONS)
def test_every_record_is_copied_once(
    start_echoless: Callable[..., Echoless], tmp_path: Path, version: str
) -> None:
    """Killed with records only, and with offsets, in an open transaction, and aborted: committed records are there once each."""
    broker = start_echoless()

    def disturb(place: str) -> None:
        if place in KILLED_AT:
            broker.kill()
            broker.start()

    copy(version, broker.kafka_address, tmp_path, disturb)


@pytest.mark.cluster
@pytest.mark.parametrize("version", JAVA_VERSIONS)
def test_others_take_over(tmp_path: Path, version: str) -> None:
    """Brokers of three killed in turn, each away until the next word: leaders and both coordinators move in open transactions."""
    with Cluster(tmp_path) as cluster:
        cluster.start()
        in_turn = itertools.cycle(cluster.brokers)

        def disturb(place: str) -> None:
            for broker_id in {*cluster.brokers} - {*cluster.live}:
                cluster.start_broker(broker_id)
            if place in KILLED_AT:
                cluster.wait_until(cluster.is_healed)
                cluster.kill(next(in_turn))

        copy(version, cluster.bootstrap, tmp_path, disturb, replicas=3)


def copy(
    version: str,
    bootstrap: str,
    directory: Path,
    disturb: Callable[[str], None],
    *,
    replicas: int = 1,
) -> None:
    """Runs the copier to its end, with `disturb` at each of its words, and checks what it has copied."""
    require("java", f"java-client-{version}")
    values = fill(bootstrap, replicas=replicas)
    said = directory / "copier.log"
    with (
        said.open("w") as log,
        subprocess.Popen(
            command(version, bootstrap),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        ) as copier,
    ):
        try:
            seen = direct(copier, disturb)
        finally:
            copier.kill()
    assert {*KILLED_AT, *ABORTED_AT} <= seen, said.read_text()[-4000:]
    assert Counter(read_all(bootstrap, "read_committed")) == Counter(values)
    assert Counter(read_all(bootstrap, "read_uncommitted")) > Counter(values)


def direct(copier: subprocess.Popen[str], disturb: Callable[[str], None]) -> set[str]:
    """Answers the copier until it is done; returns its words, counted."""
    assert copier.stdin is not None
    assert copier.stdout is not None
    counts: Counter[str] = Counter()
    seen: set[str] = set()
    for line in copier.stdout:
        word = line.split()[0]
        counts[word] += 1
        place = f"{word} {counts[word]}"
        seen.add(place)
        disturb(place)
        if word == "done":
            break
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
