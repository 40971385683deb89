"""Asks a broker for what the console's Live page asks for, and drops it: a browser that takes no time to draw.

python -m benchmarks.console_reader HOST:PORT
"""

from __future__ import annotations

import sys
import threading
import time
import urllib.request
from typing import Final

_FOLLOWED: Final = "decisions?follow=true&reader=console&brokers=all&n=200"
_LOOKED_AT: Final = ("overview", "faults")
_LOOK_EVERY_S: Final = 2.0
_PATIENCE_S: Final = 30.0
_CHUNK_BYTES: Final = 65_536


def main() -> None:
    """Reads until it is ended; says `reading` once it follows."""
    url = f"http://{sys.argv[1]}/"
    stream = urllib.request.urlopen(url + _FOLLOWED)
    threading.Thread(target=_look, args=(url,), daemon=True).start()
    print("reading", flush=True)
    while stream.read1(_CHUNK_BYTES):
        pass


def _look(url: str) -> None:
    while True:
        for path in _LOOKED_AT:
            urllib.request.urlopen(url + path, timeout=_PATIENCE_S).read()
        time.sleep(_LOOK_EVERY_S)


if __name__ == "__main__":
    main()
