"""A free port for a server that must find it free again at its next start."""

from __future__ import annotations

import random
import socket
from typing import Final

_PORTS: Final = range(20_000, 32_000)
"""Below Linux's ephemeral range, so that no outgoing connection takes one between two starts."""
_ATTEMPTS: Final = 200


def free_address() -> str:
    """`127.0.0.1` with a free port."""
    for port in random.SystemRandom().sample(_PORTS, _ATTEMPTS):
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return f"127.0.0.1:{port}"
    raise OSError(f"{_ATTEMPTS} random ports are all taken")
