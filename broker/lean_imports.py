"""Imports of asyncio and uvloop without what they import on their own and a broker hardly ever uses.

OpenSSL: asyncio does without, as on a Python that was built so. uvloop does not, so it is given a module in whose
place a broker with a TLS listener has the real one; TLS in the broker is uvloop's, not asyncio's. OpenSSL is 4 MB
and a tenth of the start.

Modules that are used to start processes, to print a traceback or to look at source code: a `_Later` is in their place,
which imports the real one when a name of it is asked for. All of them together are 6 ms.

A later import of one of them (by the admin port, ZooKeeper by TLS, the keys of OAuth) gives the real one.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from types import CodeType, GeneratorType, MethodType, ModuleType
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop

_COROUTINE: Final = 0x80
"""`inspect.CO_COROUTINE`, in the flags of a function's code."""


def import_lean() -> None:
    """Imports asyncio and uuid. Call it before the broker's modules are imported."""
    with _in_place({"ssl": None, "platform": _Platform("platform"), **_rarely_used()}):
        import asyncio  # noqa: F401
        import uuid  # noqa: F401


def loop_factory(*, speaks_tls: bool) -> Callable[[], AbstractEventLoop]:
    """Imports uvloop, with `ssl` if the broker speaks TLS, and returns its function that makes a loop."""
    with _in_place(_rarely_used() if speaks_tls else {"ssl": _NoTls("ssl"), **_rarely_used()}):
        import uvloop

    return uvloop.new_event_loop


def _rarely_used() -> Mapping[str, ModuleType]:
    """Stand-ins for what asyncio, logging and uvloop import, and take next to nothing of."""
    names = ("asyncio.sslproto", "textwrap", "tokenize")
    later: dict[str, ModuleType] = {name: _Later(name) for name in names}
    return later | {"inspect": _Inspect("inspect"), "subprocess": _Subprocess("subprocess")}


@contextmanager
def _in_place(modules: Mapping[str, ModuleType | None]) -> Iterator[None]:
    """Has these imported instead of those with their names; None: there is none. Those that are loaded stay."""
    placed = {name: one for name, one in modules.items() if name not in sys.modules}
    sys.modules.update(placed)  # type: ignore[arg-type]  # None is what the import system documents
    try:
        yield
    finally:
        for name, one in placed.items():
            _remove(name, one)


def _remove(name: str, one: ModuleType | None) -> None:
    if sys.modules.get(name, ...) is one:
        del sys.modules[name]


class _Later(ModuleType):
    """Stands for a module; the real one is imported for any name that this one lacks."""

    def __getattr__(self, name: str) -> Any:
        _remove(self.__name__, self)
        return getattr(import_module(self.__name__), name)


class _Platform(_Later):
    """The one function of it that `uuid` calls when it is imported."""

    @staticmethod
    def system() -> str:
        return os.uname().sysname


class _Inspect(_Later):
    """The two functions that uvloop takes from `inspect` when it is imported."""

    @staticmethod
    def isgenerator(candidate: object) -> bool:
        return isinstance(candidate, GeneratorType)

    @staticmethod
    def iscoroutinefunction(candidate: Any) -> bool:
        """Tells of functions, methods and partials; uvloop asks of all that a thread is to do."""
        while isinstance(candidate, MethodType | partial):
            candidate = candidate.func if isinstance(candidate, partial) else candidate.__func__
        code = getattr(candidate, "__code__", None)
        return isinstance(code, CodeType) and code.co_flags & _COROUTINE != 0


class _Subprocess(_Later):
    """Names that asyncio and uvloop take from `subprocess` when they are imported."""

    PIPE, STDOUT, DEVNULL = -1, -2, -3
    SubprocessError = type("SubprocessError", (Exception,), {})


class _NoTls(_Later):
    """Names that uvloop takes from `ssl` when it is imported. No context is an instance of this class: all are refused."""

    SSLContext = MemoryBIO = type("NoTls", (), {})
    SSLError = SSLWantReadError = SSLSyscallError = SSLZeroReturnError = CertificateError = type(
        "NoTlsError", (Exception,), {}
    )
    SSL_ERROR_WANT_READ = SSL_ERROR_WANT_WRITE = SSL_ERROR_SYSCALL = -1

    @staticmethod
    def create_default_context() -> None:
        raise AssertionError("this broker speaks no TLS")
