"""The stopwatch of `docs/testing.md`: from nothing to a first green test, with Echoless and with what else there is.

    python -m benchmarks.first_test [--rounds 5] [--only echoless,echoless-plain,mock,kfake,kafka]

The test: a record is sent, what can be lost is lost (with `echoless-plain`, `mock` and `kafka` nothing), and the record is
read back; with librdkafka, but for kfake. `install` is `pip install` into a new
environment with wheels that pip has in its cache (for kfake: compiling the modules that Go has in its cache); `test` is one
run of pytest (`go test`) once the file is written, all processes that it starts included. Apache Kafka is not in a
container: its jars are started as our own tests do, by a JVM with an archive of classes, tuned for a quick start.
"""

from __future__ import annotations

import argparse
import os
import re
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

from benchmarks.pairs import several_in_turn
from tests.support.echoless import REPOSITORY
from tests.toolchain import require

_PLAIN: Final = """\
from confluent_kafka import Consumer, Producer, TopicPartition


def test_an_order_is_stored(echoless):
    servers = {"bootstrap.servers": echoless.bootstrap_servers}
    producer = Producer({**servers, "enable.idempotence": True})
    producer.produce("orders", b"paid", partition=0)
    assert producer.flush(30) == 0
    consumer = Consumer({**servers, "group.id": "test"})
    consumer.assign([TopicPartition("orders", 0, 0)])
    assert consumer.poll(30).value() == b"paid"
"""
_MOCK: Final = """\
from confluent_kafka import Consumer, Producer, TopicPartition


def test_an_order_is_stored():
    producer = Producer({"test.mock.num.brokers": 1, "enable.idempotence": True})
    (broker,) = producer.list_topics(timeout=30).brokers.values()
    producer.produce("orders", b"paid", partition=0)
    assert producer.flush(30) == 0
    consumer = Consumer({"bootstrap.servers": f"{broker.host}:{broker.port}", "group.id": "test"})
    consumer.assign([TopicPartition("orders", 0, 0)])
    assert consumer.poll(30).value() == b"paid"
"""
_KAFKA: Final = """\
from confluent_kafka import Consumer, Producer, TopicPartition

from tests.support.apache_kafka import ApacheKafka


def test_an_order_is_stored(tmp_path):
    kafka = ApacheKafka(tmp_path)
    kafka.start()
    servers = {"bootstrap.servers": kafka.kafka_address}
    producer = Producer({**servers, "enable.idempotence": True})
    producer.produce("orders", b"paid", partition=0)
    assert producer.flush(30) == 0
    consumer = Consumer({**servers, "group.id": "test"})
    consumer.assign([TopicPartition("orders", 0, 0)])
    assert consumer.poll(30).value() == b"paid"
    kafka.kill()
"""
_KFAKE: Final = """\
package shop

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func TestAnOrderSurvivesALostRequest(t *testing.T) {
	cluster := kfake.MustCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "orders"))
	defer cluster.Close()
	lost := 0
	cluster.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
		lost++
		return nil, errors.New("cut"), true
	})
	client, err := kgo.NewClient(kgo.SeedBrokers(cluster.ListenAddrs()...),
		kgo.MetadataMinAge(50*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	record := &kgo.Record{Topic: "orders", Value: []byte("paid")}
	if err := client.ProduceSync(context.Background(), record).FirstErr(); err != nil {
		t.Fatal(err)
	}
	client.AddConsumeTopics("orders")
	found := client.PollFetches(context.Background()).Records()
	if lost != 1 || len(found) != 1 || string(found[0].Value) != "paid" {
		t.Fatalf("lost %d, found %d", lost, len(found))
	}
}
"""
_GO_MOD: Final = """\
module shop

go 1.24

require (
	github.com/twmb/franz-go v1.22.2
	github.com/twmb/franz-go/pkg/kfake v0.0.0-20260918054303-01f206a7e32c
	github.com/twmb/franz-go/pkg/kmsg v1.15.0
)
"""
_SAID_GREEN: Final = re.compile(r"^ok\b|1 passed", re.MULTILINE)


class _Taken(NamedTuple):
    wall_s: float
    processor_s: float


def _run(
    command: Sequence[str], directory: Path, environment: Mapping[str, str] | None = None
) -> tuple[_Taken, str]:
    """Runs a command; returns what it and all it has started have taken, and what it said."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    ran = subprocess.run(
        command,
        cwd=directory,
        env={**os.environ, **(environment or {})},
        capture_output=True,
        text=True,
        check=False,
    )
    wall_s, after = time.monotonic() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    assert ran.returncode == 0, f"{command}\n{ran.stdout}\n{ran.stderr}"
    processor_s = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
    return _Taken(wall_s, processor_s), ran.stdout


class _Candidate(NamedTuple):
    """A way to have a broker in a test."""

    text: str
    install: Callable[[Path], _Taken] | None
    """None: what it needs is installed."""
    test: tuple[str, ...]
    environment: Mapping[str, str]

    @property
    def lines(self) -> int:
        return sum(bool(line.strip()) for line in self.text.splitlines())


def _with_pip(*packages: str) -> Callable[[Path], _Taken]:
    def install(directory: Path) -> _Taken:
        subprocess.run([sys.executable, "-m", "venv", str(directory / "venv")], check=True)
        pip = [str(directory / "venv/bin/python"), "-m", "pip", "--disable-pip-version-check"]
        return _run([*pip, "install", "-q", *packages], directory)[0]

    return install


def _with_go(directory: Path) -> _Taken:
    (directory / "go.mod").write_text(_GO_MOD)
    _run(["go", "mod", "tidy"], directory)
    environment = {"GOCACHE": str(directory / "cache")}
    return _run(["go", "test", "-run", "^$", "."], directory, environment)[0]


def _own_wheel(directory: Path) -> str:
    """The wheel of what is committed, as a package registry would give it."""
    (directory / "tree").mkdir()
    archive = subprocess.run(
        ["git", "archive", "HEAD"], cwd=REPOSITORY, stdout=subprocess.PIPE, check=True
    )
    subprocess.run(["tar", "-x", "-C", "tree"], cwd=directory, input=archive.stdout, check=True)
    _run([sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "./tree"], directory)
    (wheel,) = directory.glob("echoless-*.whl")
    return str(wheel)


def _example() -> str:
    """The test of `docs/testing.md` with librdkafka."""
    section = (REPOSITORY / "docs/testing.md").read_text().split("### librdkafka\n")[1]
    return section.split("```python\n")[1].split("```")[0]


def _candidates(directory: Path) -> dict[str, _Candidate]:
    pytest = ("venv/bin/python", "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_shop.py")
    go = ("go", "test", "-count=1", ".")
    cache = {"GOCACHE": str(directory / "kfake/cache")}
    plain = _with_pip("confluent-kafka", "pytest")
    ours = _with_pip(_own_wheel(directory), "confluent-kafka", "pytest")
    of_ours = str(directory / "echoless" / pytest[0])
    of_tests = {"PYTHONPATH": str(REPOSITORY)}
    return {
        "echoless": _Candidate(_example(), ours, pytest, {}),
        "echoless-plain": _Candidate(_PLAIN, None, (of_ours, *pytest[1:]), {}),
        "mock": _Candidate(_MOCK, plain, pytest, {}),
        "kfake": _Candidate(_KFAKE, _with_go, go, cache),
        "kafka": _Candidate(_KAFKA, plain, pytest, of_tests),
    }


def _measure(candidate: _Candidate, directory: Path) -> dict[str, float]:
    taken, said = _run(candidate.test, directory, candidate.environment)
    assert _SAID_GREEN.search(said), said
    return taken._asdict()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", default="echoless,echoless-plain,mock,kfake,kafka")
    arguments = parser.parse_args()
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    names = arguments.only.split(",")
    if "kafka" in names:
        require("kafka")
    with tempfile.TemporaryDirectory(prefix="first-test-") as at:
        directory = Path(at)
        all_candidates = _candidates(directory)
        candidates = {name: all_candidates[name] for name in names}
        installed = {}
        for name, one in candidates.items():
            (directory / name).mkdir()
            test = "shop_test.go" if name == "kfake" else "test_shop.py"
            (directory / name / test).write_text(one.text)
            if one.install is not None:
                installed[name] = one.install(directory / name)
        runs = [partial(_measure, one, directory / name) for name, one in candidates.items()]
        first = {name: run() for name, run in zip(names, runs, strict=True)}
        found = several_in_turn(arguments.rounds, runs)
    print(
        "| | lines | install: s, processor s | first run: s, processor s | later runs: s, processor s |"
    )
    print("|---|---|---|---|---|")
    for name, later in zip(names, found, strict=True):
        row = [_shown(installed[name]._asdict()) if name in installed else "the same"]
        row += [_shown(first[name]), _shown(_medians(later))]
        print(f"| {name} | {candidates[name].lines} | {' | '.join(row)} |", flush=True)


def _shown(figures: Mapping[str, float]) -> str:
    return f"{figures['wall_s']:.1f}, {figures['processor_s']:.1f}"


def _medians(found: Sequence[Mapping[str, float]]) -> dict[str, float]:
    return {name: statistics.median(one[name] for one in found) for name in found[0]}


if __name__ == "__main__":
    main()
