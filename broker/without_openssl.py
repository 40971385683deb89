"""Imports of asyncio and uvloop without OpenSSL, which a broker that speaks no TLS does not need: 22 ms and 5 MB.

asyncio does without `ssl`, as on a Python that was built so. uvloop does not: it gets a placeholder with the names that
it takes, unless a listener speaks TLS; TLS in the broker is uvloop's, not asyncio's. A later import of `ssl` (by the
admin port, ZooKeeper by TLS, the keys of OAuth) gives the real one.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop


def import_asyncio() -> None:
    """Imports asyncio without `ssl`. Call it before the broker's modules are imported."""
    with _as_ssl(None):
        import asyncio  # noqa: F401


def loop_factory(*, speaks_tls: bool) -> Callable[[], AbstractEventLoop]:
    """Imports uvloop, with `ssl` if the broker speaks TLS, and returns its function that makes a loop."""
    if speaks_tls:
        import uvloop
    else:
        with _as_ssl(_NoTls("ssl")):
            import uvloop
    return uvloop.new_event_loop


@contextmanager
def _as_ssl(placeholder: ModuleType | None) -> Iterator[None]:
    """Has `import ssl` give the placeholder, or fail if there is none; a real one that is loaded stays."""
    if "ssl" in sys.modules:
        yield
        return
    sys.modules["ssl"] = placeholder  # type: ignore[assignment]  # None is what the import system documents
    try:
        yield
    finally:
        if sys.modules.get("ssl", ...) is placeholder:
            del sys.modules["ssl"]


class _NoTls(ModuleType):
    """Names that uvloop takes from `ssl` when it is imported; all others are the real module's.

    No context is an instance of `SSLContext`, so a loop made with this refuses all of them.
    """

    SSLContext = MemoryBIO = type("NoTls", (), {})
    SSLError = SSLWantReadError = SSLSyscallError = SSLZeroReturnError = CertificateError = type(
        "NoTlsError", (Exception,), {}
    )
    SSL_ERROR_WANT_READ = SSL_ERROR_WANT_WRITE = SSL_ERROR_SYSCALL = -1

    @staticmethod
    def create_default_context() -> None:
        raise AssertionError("this broker speaks no TLS")

    def __getattr__(self, name: str) -> Any:
        if sys.modules.get("ssl") is self:
            del sys.modules["ssl"]
        return getattr(import_module("ssl"), name)
