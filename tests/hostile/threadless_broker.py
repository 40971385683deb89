"""`python -m tests.hostile.threadless_broker`: a broker that gets no new thread after its ready line.

As under a limit of processes (`ulimit -u`, `pids.max`), which root, whom tests run as, does not have.
`$NO_THREADS_FROM_START` refuses them from the beginning.
"""

from __future__ import annotations

import os
import sys
import threading


def refuse_threads() -> None:
    """Makes every start of a thread fail as Python does when the kernel refuses one."""

    def refuse(*_: object) -> None:
        raise RuntimeError("can't start new thread")

    threading._start_new_thread = refuse  # type: ignore[attr-defined]


def main() -> int:
    """Serves as `echoless serve` does."""
    from echoless.broker import serve

    if "NO_THREADS_FROM_START" in os.environ:
        refuse_threads()
    write = sys.stdout.write

    def write_and_refuse(text: str) -> int:
        if text.startswith("ready "):
            refuse_threads()
        return write(text)

    sys.stdout.write = write_and_refuse  # type: ignore[method-assign]
    return serve.main()


if __name__ == "__main__":
    sys.exit(main())
