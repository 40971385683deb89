"""The cost of an open console: a producer's throughput, and the broker's processor time for each batch.

    python -m benchmarks.console [--rounds N] [--seconds S] [--at-most S] [--batch-bytes N]

One broker, one librdkafka producer, runs in turn: without a console; with a real Chromium on the Live page, following;
with a program that follows, which is shown every batch; and without once more, which shows the noise. A browser draws on a
processor of its own as a rule. So the broker has one here to itself, and the producer and the browser share the others: the
throughput falls by what the console costs the broker, as long as the producer has room left.
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
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import sync_playwright

from benchmarks.pairs import pairs_of, print_pair, run_load
from tests.support.echoless import REPOSITORY, Echoless

_CHROMIUM = "/usr/bin/chromium"
_BROWSER = "browser: seconds of a processor"
_TICKS = 100
"""Clock ticks a second in `/proc/PID/stat`."""
_WAIT_S = 30
"""The longest wait for a page, for the end of a program, and for a load beyond its own seconds."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=3)
    parser.add_argument("--at-most", type=float, default=220)
    parser.add_argument("--batch-bytes", type=int, default=1024)
    arguments = parser.parse_args()
    began = time.monotonic()
    with (
        tempfile.TemporaryDirectory() as directory,
        sync_playwright() as playwright,
        contextlib.ExitStack() as cleanup,
    ):
        broker = Echoless(Path(directory))
        broker.start()
        cleanup.callback(broker.terminate)
        _give_a_processor_to(broker.process.pid)
        browser = playwright.chromium.launch(executable_path=_CHROMIUM, args=["--no-sandbox"])
        cleanup.callback(browser.close)
        page = browser.new_page()
        page.set_default_timeout(_WAIT_S * 1000)
        console = f"http://{broker.admin_address}/console#/live"

        def closed() -> dict[str, float]:
            return _run("closed", broker, arguments)

        def opened() -> dict[str, float]:
            page.goto(console)
            page.locator("#link[data-state=live]").wait_for()
            found = _run("open", broker, arguments)
            page.goto("about:blank")
            return found

        def followed() -> dict[str, float]:
            with _following(broker):
                return _run("followed", broker, arguments)

        closed()  # warms both
        opened()
        without, with_console, with_program, again = _rounds(
            (closed, opened, followed, closed), arguments.rounds, began + arguments.at_most
        )
        for title, found in (
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


def _run(title: str, broker: Echoless, arguments: argparse.Namespace) -> dict[str, float]:
    before, browser_before = _cpu_s(broker.process.pid), _browser_cpu_s()
    load = run_load(
        "throughput",
        broker.kafka_address,
        "load",
        batch_bytes=arguments.batch_bytes,
        seconds=arguments.seconds,
        timeout_s=arguments.seconds + _WAIT_S,
    )
    used = _cpu_s(broker.process.pid) - before
    browser_used = max(
        0.0, _browser_cpu_s() - browser_before
    )  # a page that was left takes its process along
    print(f"{title}: {load['batches_per_s']:.0f} batches a second", file=sys.stderr, flush=True)
    return {
        "batches a second": load["batches_per_s"],
        "broker: microseconds a batch": used / load["batches"] * 1e6,
        _BROWSER: browser_used,
    }


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
def _following(broker: Echoless) -> Iterator[None]:
    """Reads the decisions as fast as they come, and drops them."""
    command = [sys.executable, "-m", "cli", "decisions", "--follow", "--json"]
    process = subprocess.Popen(
        [*command, "--admin", broker.admin_address], cwd=REPOSITORY, stdout=subprocess.DEVNULL
    )
    try:
        yield
    finally:
        process.terminate()
        process.wait(_WAIT_S)


if __name__ == "__main__":
    main()
