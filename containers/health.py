"""The image's health check: exit code 0 when `/health` of the broker in this container answers 200.

Run by the container engine every few seconds, so it imports no more than a socket.
"""

from __future__ import annotations

import os
import socket
import sys

TIMEOUT_S = 3.0


def is_healthy(port: int) -> bool:
    """Asks the admin port on loopback."""
    with socket.create_connection(("127.0.0.1", port), TIMEOUT_S) as connection:
        connection.sendall(b"GET /health HTTP/1.0\r\n\r\n")
        status_line = connection.recv(64).split(b"\r\n")[0]
    return status_line.split(b" ")[1:2] == [b"200"]


if __name__ == "__main__":
    listen = os.environ.get("ECHOLESS_ADMIN_LISTEN", "127.0.0.1:8080")
    try:
        sys.exit(not is_healthy(int(listen.rpartition(":")[2])))
    except OSError as error:
        sys.exit(f"no answer from the admin port: {error}")
