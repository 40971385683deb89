"""The image's health check: exit code 0 when `/health` of the broker in this container answers 200.

Run by the container engine every few seconds, so it imports no more than a socket, and `ssl` where the admin port
speaks TLS: by the environment, by the configuration file that the environment names, or because it does not answer
otherwise. The certificate is not checked: nothing secret is sent, and it is not for the name of loopback. The broker's
own certificate is shown, which an admin port with `ssl_client_auth=required` accepts if its authority is trusted.
"""

from __future__ import annotations

import os
import socket
import sys

TIMEOUT_S = 3.0
_MAP, _KEYSTORE, _PASSWORD = (
    "listener_security_protocol_map",
    "ssl_keystore_location",
    "ssl_keystore_password",
)


def is_healthy(port: int, settings: dict[str, str]) -> bool:
    """Asks the admin port on loopback. Raises `OSError`."""
    if "ADMIN:SSL" in settings.get(_MAP, "").upper().replace(" ", ""):
        return _is_ok(_answer(port, settings, is_encrypted=True))
    try:
        answer = _answer(port, settings, is_encrypted=False)
    except ConnectionResetError:
        answer = b""
    if not answer.startswith(b"HTTP/"):
        answer = _answer(port, settings, is_encrypted=True)
    return _is_ok(answer)


def _answer(port: int, settings: dict[str, str], *, is_encrypted: bool) -> bytes:
    with socket.create_connection(("127.0.0.1", port), TIMEOUT_S) as connection:
        spoken = _encrypted(connection, settings) if is_encrypted else connection
        with spoken:
            spoken.sendall(b"GET /health HTTP/1.0\r\n\r\n")
            return spoken.recv(64)


def _encrypted(connection: socket.socket, settings: dict[str, str]) -> socket.socket:
    import ssl

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    if settings.get(_KEYSTORE):
        context.load_cert_chain(settings[_KEYSTORE], password=settings.get(_PASSWORD, ""))
    return context.wrap_socket(connection)


def _is_ok(answer: bytes) -> bool:
    return answer.split(b"\r\n")[0].split(b" ")[1:2] == [b"200"]


def settings() -> dict[str, str]:
    """The settings that concern the admin port: of the environment, else of the configuration file that it names."""
    found: dict[str, str] = {}
    path = os.environ.get("ECHOLESS_CONFIG")
    if path is not None:
        import tomllib

        with open(path, "rb") as file:  # noqa: PTH123 - pathlib takes as long as all else
            document = tomllib.load(file)
        own = {**document, **document.get("listener", {}).get("admin", {})}
        found = {name: value for name, value in own.items() if isinstance(value, str)}
    for name in ("admin_listen", _MAP, _KEYSTORE, _PASSWORD):
        value = os.environ.get(f"ECHOLESS_{name.upper()}")
        if value is not None:
            found[name] = value
    return found


if __name__ == "__main__":
    try:
        known = settings()
        listen = known.get("admin_listen", "127.0.0.1:8080")
        sys.exit(not is_healthy(int(listen.rpartition(":")[2]), known))
    except (OSError, ValueError) as error:
        sys.exit(f"no answer from the admin port: {error!r}")
