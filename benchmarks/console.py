"""The cost of an open console: a producer's throughput, and the broker's processor time for each batch.

    python -m benchmarks.console [--rounds N] [--seconds S] [--at-most S] [--batch-bytes N]

One broker and one librdkafka producer that sends as fast as it can all the time, while these take turns: no console; a reader
that asks for what the Live page asks for, and draws nothing; a real Chromium on the Live page; a program that follows, which is
shown every batch; and no console once more, which shows the noise. The broker has a processor to itself. As a rule a browser
has others than the producer; on a machine of two it runs on the producer's, though only while that is idle, and disturbs
it. So the reader shows what an open console costs a producer, and Chromium what it costs where the two share a processor.
No round begins that would end after `--at-most` seconds; what was measured until then is printed.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import sync_playwright

from benchmarks.pairs import pairs_of, print_pair
from tests.support.echoless import REPOSITORY, Echoless

_CHROMIUM = "/usr/bin/chromium"
_BROWSER = "browser: seconds of a processor"
_APPENDED = "echoless_batches_appended_total"
_MEMORY = Path("/dev/shm")
_SETTLING_S = 0.5
_TICKS = 100
"""Clock ticks a second in `/proc/PID/stat`."""
_WAIT_S = 30
"""The longest wait for a page, for an answer, and for the end of a program."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=14)
    parser.add_argument("--seconds", type=float, default=2)
    parser.add_argument("--at-most", type=float, default=220)
    parser.add_argument("--batch-bytes", type=int, default=1024)
    arguments = parser.parse_args()
    began = time.monotonic()
    with (
        tempfile.TemporaryDirectory(dir=_MEMORY if _MEMORY.is_dir() else None) as directory,
        sync_playwright() as playwright,
        contextlib.ExitStack() as cleanup,
    ):
        broker = Echoless(Path(directory))
        broker.start()
        cleanup.callback(broker.terminate)
        _give_a_processor_to(broker.process.pid)
        browser = playwright.chromium.launch(
            executable_path=_only_when_idle(Path(directory)), args=["--no-sandbox"]
        )
        cleanup.callback(browser.close)
        cleanup.enter_context(_producing(broker, arguments))
        page = browser.new_page()
        page.set_default_timeout(_WAIT_S * 1000)
        console = f"http://{broker.admin_address}/console#/live"

        def closed() -> dict[str, float]:
            return _measured("closed", broker, arguments.seconds)

        def read() -> dict[str, float]:
            reader = ["benchmarks.console_reader", broker.admin_address]
            with _running(reader, subprocess.PIPE) as process:
                assert process.stdout is not None
                assert process.stdout.readline() == b"reading\n"
                return _measured("read", broker, arguments.seconds)

        def opened() -> dict[str, float]:
            page.goto(console)
            page.locator("#link[data-state=live]").wait_for()
            found = _measured("open", broker, arguments.seconds)
            page.goto("about:blank")
            return found

        def followed() -> dict[str, float]:
            follow = [
                "echoless",
                "decisions",
                "--follow",
                "--json",
                "--admin",
                broker.admin_address,
            ]
            with _running(follow):
                return _measured("followed", broker, arguments.seconds)

        closed()  # warms both
        opened()
        without, with_reader, with_console, with_program, again = _rounds(
            (closed, read, opened, followed, closed), arguments.rounds, began + arguments.at_most
        )
        for title, found in (
            ("read", with_reader),
            ("open", with_console),
            ("followed", with_program),
            ("closed again", again),
        ):
            for name, pair in pairs_of(found, without).items():
                if name != _BROWSER:
                    print_pair(name, pair, first=title, second="closed")
        spent = statistics.median(one[_BROWSER] for one in with_console)
        print(f"{_BROWSER:44} open     {spent:11.2f}")


def _rounds(
    candidates: Sequence[Callable[[], dict[str, float]]], rounds: int, until: float
) -> list[list[Mapping[str, float]]]:
    """Runs each once a round, every second round backwards; the first round is run whatever the time."""
    found: list[list[Mapping[str, float]]] = [[] for _ in candidates]
    order = list(range(len(candidates)))
    took = 0.0
    for number in range(1, rounds + 1):
        began = time.monotonic()
        if number > 1 and began + took > until:
            print(f"time is up after {number - 1} of {rounds} rounds", file=sys.stderr, flush=True)
            break
        print(f"round {number} of {rounds}", file=sys.stderr, flush=True)
        for index in order:
            found[index].append(candidates[index]())
        order.reverse()
        took = max(took, time.monotonic() - began)
    return found


def _give_a_processor_to(pid: int) -> None:
    """Keeps everything but this process off one processor; does nothing where there is only one."""
    first, *others = sorted(os.sched_getaffinity(0))
    if others:
        os.sched_setaffinity(0, others)  # inherited by the producer and the browser
        for thread in Path(f"/proc/{pid}/task").iterdir():
            os.sched_setaffinity(int(thread.name), {first})


def _only_when_idle(directory: Path) -> Path:
    """A command that starts Chromium so that it runs while nothing else wants the processor."""
    command = directory / "chromium"
    command.write_text(f'#!/bin/sh\nexec chrt --idle 0 {_CHROMIUM} "$@"\n')
    command.chmod(0o700)
    return command


@contextmanager
def _producing(broker: Echoless, arguments: argparse.Namespace) -> Iterator[None]:
    """Has a producer send as fast as it can."""
    load = ["benchmarks.load", "throughput", "--topic", "load", "--bootstrap", broker.kafka_address]
    load += ["--batch-bytes", str(arguments.batch_bytes)]
    with _running([*load, "--seconds", str(arguments.at_most + _WAIT_S)]) as process:
        while not _appended(broker):
            assert process.poll() is None, "the producer has ended"
            time.sleep(0.05)
        yield


def _measured(title: str, broker: Echoless, seconds: float) -> dict[str, float]:
    """The figures of so many seconds, after a moment in which all get used to what has changed."""
    time.sleep(_SETTLING_S)
    browser, used = _browser_cpu_s(), _cpu_s(broker.process.pid)
    appended, began = _appended(broker), time.monotonic()
    time.sleep(seconds)
    batches = _appended(broker) - appended
    rate = batches / (time.monotonic() - began)
    used = _cpu_s(broker.process.pid) - used
    print(f"{title}: {rate:.0f} batches a second", file=sys.stderr, flush=True)
    return {
        "batches a second": rate,
        "broker: microseconds a batch": used / batches * 1e6,
        # A page that was left takes its process, and its time, along.
        _BROWSER: max(0.0, _browser_cpu_s() - browser),
    }


def _appended(broker: Echoless) -> float:
    """Batches appended so far."""
    with urllib.request.urlopen(f"http://{broker.admin_address}/metrics", timeout=_WAIT_S) as found:
        lines: list[str] = found.read().decode().splitlines()
    return sum(float(one.split()[-1]) for one in lines if one.startswith(_APPENDED))


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def _browser_cpu_s() -> float:
    """The processor time of the browser's processes: those of Chromium that this process has begotten."""
    children: dict[int, list[int]] = {}
    names: dict[int, str] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            head, _, rest = path.read_text().rpartition(") ")
            pid = int(path.parent.name)
            names[pid] = head.partition("(")[2]
            children.setdefault(int(rest.split()[1]), []).append(pid)
    found, rest_ = list[int](), [os.getpid()]
    while rest_:
        mine = children.get(rest_.pop(), [])
        rest_ += mine
        found += [pid for pid in mine if names[pid].startswith("chrom")]
    total = 0.0
    for pid in found:
        with contextlib.suppress(OSError):
            total += _cpu_s(pid)
    return total


@contextmanager
def _running(
    module: list[str], stdout: int = subprocess.DEVNULL
) -> Iterator[subprocess.Popen[bytes]]:
    """A program beside this one, ended afterwards."""
    process = subprocess.Popen([sys.executable, "-m", *module], cwd=REPOSITORY, stdout=stdout)
    try:
        yield process
    finally:
        process.terminate()
        process.wait(_WAIT_S)


if __name__ == "__main__":
    main()
