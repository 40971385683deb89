"""`python -m tests.hostile.steps.measured_broker`: a broker that writes down each long step of its event loop.

A step is one callback: nothing else runs on the loop until it returns. It is measured in processor time of the loop's
thread, which a busy machine does not change, beside a fixed piece of work, which shows how slow the machine is. The loop is
asyncio's own: uvloop calls no method that could be measured.

The garbage collector counts as long as it runs in a step: what a request allocates, it looks at.

Each line of `$STEPS_FILE` is one step as JSON (`Step`).
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import threading
import time
import traceback
from pathlib import Path
from typing import Final, NamedTuple

from tests.hostile.siege import yardstick

STEPS_FILE: Final = "STEPS_FILE"
"""The environment variable that names the file."""
NOTED_S: Final = 0.003
_LOOKS_EVERY_S: Final = 0.004


class Step(NamedTuple):
    """One callback of the loop that took longer than `NOTED_S`."""

    ended_at: float
    """By the monotonic clock, which all processes of a machine share."""
    took_s: float
    """Processor time."""
    yardstick_s: float
    """Processor time of the fixed piece of work right after it."""
    what: str
    """The stack of the loop, as another thread saw it last."""


class StepMeter:
    """Measures callbacks on the thread that made it."""

    def __init__(self, path: Path) -> None:
        self._out = path.open("a", buffering=1)
        self._loop_thread = threading.get_ident()
        self._step = 0
        self._seen: tuple[int, str] = (0, "")

    def start(self) -> None:
        run = asyncio.Handle._run  # type: ignore[attr-defined]

        def measured(handle: asyncio.Handle) -> None:
            if threading.get_ident() != self._loop_thread:
                run(handle)
                return
            self._step += 1
            began = time.thread_time()
            run(handle)
            took_s = time.thread_time() - began
            if took_s > NOTED_S:
                self._write(took_s)
            self._step += 1

        asyncio.Handle._run = measured  # type: ignore[attr-defined]
        threading.Thread(target=self._look, daemon=True).start()
        for _ in range(5):
            self._write(0.0)

    def _look(self) -> None:
        """Notes where the loop is, now and then, while it is in a step."""
        while True:
            time.sleep(_LOOKS_EVERY_S)
            step = self._step
            frame = sys._current_frames().get(self._loop_thread)
            if step % 2 and frame is not None:
                frames = traceback.extract_stack(frame)[-6:]
                self._seen = (
                    step,
                    " < ".join(
                        f"{f.name} {Path(f.filename).name}:{f.lineno}" for f in reversed(frames)
                    ),
                )

    def _write(self, took_s: float) -> None:
        step, what = self._seen
        line = Step(
            time.monotonic(), took_s, yardstick.measure_s(), what if step == self._step else ""
        )
        self._out.write(json.dumps(line) + "\n")


def read_steps(path: Path, position: int = 0) -> tuple[list[Step], int]:
    """The steps that were written from `position` of the file on, and the position of the next one."""
    with path.open("rb") as file:
        file.seek(position)
        data = file.read()
    whole = data[: data.rfind(b"\n") + 1]
    return [Step(*json.loads(line)) for line in whole.splitlines()], position + len(whole)


def main() -> int:
    """Serves as `echoless serve` does, with a meter on the loop."""
    meter = StepMeter(Path(os.environ[STEPS_FILE]))

    def measured_loop() -> asyncio.AbstractEventLoop:
        meter.start()
        return asyncio.SelectorEventLoop()

    from echoless.broker import serve

    serve.loop_factory = lambda **_: measured_loop  # type: ignore[attr-defined,assignment]
    return serve.main()


if __name__ == "__main__":
    sys.exit(main())
