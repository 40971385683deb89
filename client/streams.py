"""Opens asyncio streams to a broker, encrypted if the security options say so."""

from __future__ import annotations

import asyncio
import os
from typing import Any

from echoless.client.connection_errors import ConnectionFailedError
from echoless.client.security import Security
from echoless.client.tls import handshake_failure, tls_context


async def open_streams(
    host: str, port: int, address: str, timeout_s: float, security: Security
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Raises `ConnectionFailedError`."""
    encryption: dict[str, Any] = {}
    if security.tls is not None:
        context = await asyncio.to_thread(tls_context, security.tls)
        encryption = {"ssl": context, "ssl_handshake_timeout": timeout_s}
    try:
        async with asyncio.timeout(timeout_s):
            return await asyncio.open_connection(host, port, **encryption)
    except TimeoutError as error:
        raise ConnectionFailedError(f"{address} cannot be reached in {timeout_s:g} s") from error
    except OSError as error:
        raise _unreachable(error, address, is_encrypted=bool(encryption)) from error


def _unreachable(error: OSError, address: str, *, is_encrypted: bool) -> ConnectionFailedError:
    reason = error.strerror or str(error) or type(error).__name__
    if isinstance(error, ConnectionError) and error.errno:
        reason = os.strerror(error.errno)  # asyncio's text lacks it: "Connect call failed"
    if is_encrypted:
        found = handshake_failure(error, address)
        if found is not None:
            return found
        if isinstance(error, ConnectionResetError):
            reason = "it ended the TLS handshake; does it speak TLS there?"
    return ConnectionFailedError(f"{address} cannot be reached ({reason})")
