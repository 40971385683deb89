"""Ports for servers that must find them free at each start: given to one owner only, in whichever process it runs.

A port that is free now may be given out again before its server binds it: two of a dozen random ports are the same once in
two hundred times, of a hundred in one of three. So a port belongs to the process that got it until that ends.
The claim is a record lock, at the port's own byte of one file: it ends with the process, however that ends.
"""

from __future__ import annotations

import fcntl
import functools
import os
import random
import socket
from pathlib import Path
from typing import Final

_PORTS: Final = range(20_000, 32_000)
"""Below Linux's ephemeral range, so no outgoing connection takes a port between two starts."""
_TRIES: Final = 1000
_CLAIMS_IN: Final = Path("/tmp")  # noqa: S108 - a file of locks, without content
"""A place that all runs share, unlike TMPDIR."""
_RANDOM: Final = random.SystemRandom()
_given: Final[set[int]] = set()
"""The ports of this process, which its own locks do not keep from it."""


def free_address() -> str:
    """`127.0.0.1` with a free port."""
    return f"127.0.0.1:{free_port()}"


def free_port() -> int:
    """A free TCP port of 127.0.0.1 that nobody has been given, here or in another process.

    Raises `OSError` if none is free, or the file of claims in /tmp cannot be opened.
    """
    for _ in range(_TRIES):
        port = _RANDOM.choice(_PORTS)
        if port not in _given and _claim(port):
            _given.add(port)
            if is_free(port):
                return port
    raise OSError(f"{_TRIES} random ports are all taken")


def _claim(port: int) -> bool:
    claims = _claims()
    try:
        fcntl.lockf(claims, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, port)
    except OSError:
        return False
    return True


@functools.cache
def _claims() -> int:
    """The file of claims; open as long as the process, because closing it would give them up."""
    path = _CLAIMS_IN / f"echoless-test-ports-{os.getuid()}"
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)


def is_free(port: int) -> bool:
    """Whether a server could bind this TCP port of 127.0.0.1 now."""
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
