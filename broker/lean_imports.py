"""Imports of asyncio, shutil and uvloop without OpenSSL and the archive formats, which most brokers never use.

All three import `ssl`, or `bz2` and `lzma`, on their own: 4 MB and a tenth of the start. asyncio and shutil do without
what is missing, as on a Python that was built so. uvloop does not, so it is given a module in whose place a broker
with a TLS listener has the real one; TLS in the broker is uvloop's, not asyncio's.

Whoever imports `ssl` later (the admin port, ZooKeeper by TLS, the keys of OAuth) gets the real one.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop


def import_lean() -> None:
    """Imports asyncio and shutil. Call it before the broker's modules are imported."""
    with _in_place({"ssl": None, "bz2": None, "lzma": None}):
        import asyncio  # noqa: F401
        import shutil  # noqa: F401


def loop_factory(*, speaks_tls: bool) -> Callable[[], AbstractEventLoop]:
    """Imports uvloop, with `ssl` if the broker speaks TLS, and returns its function that makes a loop."""
    with _in_place({} if speaks_tls else {"ssl": _NoTls("ssl")}):
        import uvloop

    return uvloop.new_event_loop


@contextmanager
def _in_place(modules: Mapping[str, ModuleType | None]) -> Iterator[None]:
    """Has these imported instead of those with their names; None: there is none. Those that are loaded stay."""
    placed = {name: one for name, one in modules.items() if name not in sys.modules}
    sys.modules.update(placed)  # type: ignore[arg-type]  # None is what the import system documents
    try:
        yield
    finally:
        for name, one in placed.items():
            if sys.modules[name] is one:
                del sys.modules[name]


class _NoTls(ModuleType):
    """Names that uvloop takes from `ssl` when it is imported. No context is an instance of this class: all are refused."""

    SSLContext = MemoryBIO = type("NoTls", (), {})
    SSLError = SSLWantReadError = SSLSyscallError = SSLZeroReturnError = CertificateError = type(
        "NoTlsError", (Exception,), {}
    )
    SSL_ERROR_WANT_READ = SSL_ERROR_WANT_WRITE = SSL_ERROR_SYSCALL = -1

    @staticmethod
    def create_default_context() -> None:
        raise AssertionError("this broker speaks no TLS")

    def __getattr__(self, name: str) -> Any:
        """Gives another uvloop what else it takes, from the real `ssl`."""
        if sys.modules["ssl"] is self:
            del sys.modules["ssl"]
        return getattr(import_module("ssl"), name)
