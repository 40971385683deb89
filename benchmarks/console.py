"""The cost of an open console: a producer's throughput, and the broker's processor time for each batch.

    python -m benchmarks.console [--rounds N] [--seconds S] [--batch-bytes N]

One broker, one librdkafka producer, two runs in turn: with a real Chromium on the Live page, following, and
without. A third column follows as a program does, which is shown every batch. The browser draws on the same
processors, so on a small machine it takes time from the producer as well: the broker's own time is the fairer figure.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import sync_playwright

from benchmarks.pairs import pairs_of, print_pair, run_load, several_in_turn
from tests.support.echoless import REPOSITORY, Echoless

_CHROMIUM = "/usr/bin/chromium"
_TICKS = 100
"""Clock ticks a second in `/proc/PID/stat`."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--batch-bytes", type=int, default=1024)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory, sync_playwright() as playwright:
        broker = Echoless(Path(directory))
        broker.start()
        browser = playwright.chromium.launch(executable_path=_CHROMIUM, args=["--no-sandbox"])
        page = browser.new_page()
        console = f"http://{broker.admin_address}/console#/live"

        def closed() -> dict[str, float]:
            return _run(broker, arguments)

        def opened() -> dict[str, float]:
            page.goto(console)
            page.locator("#link[data-state=live]").wait_for()
            found = _run(broker, arguments)
            page.goto("about:blank")
            return found

        def followed() -> dict[str, float]:
            with _following(broker):
                return _run(broker, arguments)

        closed()  # warms both
        opened()
        without, with_console, with_program, again = several_in_turn(
            arguments.rounds, (closed, opened, followed, closed)
        )
        for title, found in (
            ("open", with_console),
            ("followed", with_program),
            ("closed again", again),
        ):
            for name, pair in pairs_of(found, without).items():
                print_pair(name, pair, first=title, second="closed")
        browser.close()
        broker.terminate()


def _run(broker: Echoless, arguments: argparse.Namespace) -> dict[str, float]:
    before, browser_before = _cpu_s(broker.process.pid), _browser_cpu_s()
    load = run_load(
        "throughput",
        broker.kafka_address,
        "load",
        batch_bytes=arguments.batch_bytes,
        seconds=arguments.seconds,
    )
    used = _cpu_s(broker.process.pid) - before
    browser_used = max(
        0.0, _browser_cpu_s() - browser_before
    )  # a page that was left takes its process along
    return {
        "batches a second": load["batches_per_s"],
        "broker: microseconds a batch": used / load["batches"] * 1e6,
        "browser: seconds of a processor": browser_used,
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
        process.wait()


if __name__ == "__main__":
    main()
