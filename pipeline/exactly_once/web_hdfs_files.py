"""Files of the ledger on HDFS by WebHDFS, which needs neither libhdfs nor a JVM on the executors.

A file on HDFS has its name before its content. So the content is written under a name of its own, which is then changed: HDFS
renames nothing onto a file that exists. An attempt whose answer was lost looks for the name of its own: it is gone only
if the rename has succeeded, since no one else knows it.
"""

from __future__ import annotations

import getpass
import http.client
import json
import os
import socket
import uuid
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Final, TypeVar
from urllib.parse import quote, urlencode, urlsplit

from echoless.pipeline.exactly_once.errors import LedgerError, OptionError, first_line
from echoless.pipeline.exactly_once.repetition import REQUEST_S, repeated
from echoless.pipeline.exactly_once.store_settings import WEB_SCHEMES, StoreSettings

_NAME_NODES: Final = "webhdfs_addresses"
_HADOOP_NAME_NODE: Final = "dfs.namenode.http-address"
_OPTIONS: Final = frozenset({_NAME_NODES, "webhdfs_user", "webhdfs_token"})
_PORTS: Final = {"webhdfs": 9870, "swebhdfs": 9871}
_OK: Final = (200, 201)
_REDIRECT: Final = 307
_MESSAGE_MAX: Final = 300

_Result = TypeVar("_Result")


class _HdfsError(Exception):
    """An answer of a name node or data node that is an error: the exception that it names."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(f"{kind}: {message}"[:_MESSAGE_MAX])
        self.kind = kind


_NOT_FOUND: Final = "FileNotFoundException"
_STANDBY: Final = "StandbyException"
_FINAL: Final = frozenset(
    {
        _NOT_FOUND,
        "AccessControlException",
        "SecurityException",
        "IllegalArgumentException",
        "ParentNotDirectoryException",
        "InvalidToken",
    }
)
_PASSING: Final = (OSError, http.client.HTTPException, _HdfsError)


class WebHdfsFiles:
    """Files below one directory of HDFS."""

    def __init__(
        self,
        addresses: Sequence[str],
        root: str,
        *,
        is_encrypted: bool = False,
        credentials: tuple[tuple[str, str], ...] = (),
    ) -> None:
        """`addresses`: HOST:PORT of the name nodes' web servers; the one that is active is found.

        `credentials`: parameters of each request to a name node.
        """
        self._addresses = list(addresses)
        self._root = root.rstrip("/")
        self._is_encrypted = is_encrypted
        self._credentials = credentials

    def list(self, directory: str) -> list[str]:
        try:
            found = self._repeat(lambda: self._ask("GET", directory, "LISTSTATUS"))
        except _AbsentError:
            return []
        names = (one["pathSuffix"] for one in json.loads(found)["FileStatuses"]["FileStatus"])
        return sorted(name for name in names if not name.startswith("."))

    def read(self, name: str) -> bytes:
        return self._repeat(lambda: self._ask("GET", name, "OPEN"))

    def find(self, name: str) -> bytes | None:
        try:
            return self.read(name)
        except _AbsentError:
            return None

    def create(self, name: str, data: bytes) -> bool:
        directory, _, base = name.rpartition("/")
        own = f"{directory}/.{base}.{uuid.uuid4().hex}"
        if self._repeat(lambda: self._exists(name)):
            return False
        # CREATE makes the directory, too.
        self._repeat(lambda: self._ask("PUT", own, "CREATE", data, overwrite="true"))
        is_ours = self._repeat(lambda: self._renamed(own, name))
        if not is_ours:
            self.delete(own)
        return is_ours

    def delete(self, name: str) -> None:
        with suppress(LedgerError):
            self._repeat(lambda: self._ask("DELETE", name, "DELETE"))

    def _renamed(self, own: str, name: str) -> bool:
        """Renames, and returns whether it has, now or in an attempt whose answer was lost."""
        answer = self._ask("PUT", own, "RENAME", destination=self._path(name))
        if json.loads(answer)["boolean"]:
            return True
        if not self._exists(own):
            return True
        if self._exists(name):
            return False
        raise _HdfsError("RENAME", f"{name} was refused, and is not there")

    def _exists(self, name: str) -> bool:
        try:
            self._ask("GET", name, "GETFILESTATUS")
        except _HdfsError as error:
            if error.kind == _NOT_FOUND:
                return False
            raise
        return True

    def _path(self, name: str) -> str:
        return f"{self._root}/{name}".rstrip("/") or "/"

    def _repeat(self, ask: Callable[[], _Result]) -> _Result:
        """Asks until there is an answer. Raises `LedgerError` if that is an error, or there is none."""
        try:
            return repeated(ask, _PASSING, _is_final)
        except _PASSING as error:
            is_absent = isinstance(error, _HdfsError) and error.kind == _NOT_FOUND
            kind = _AbsentError if is_absent else LedgerError
            place = f"{self._addresses[0]}{self._root}"
            raise kind(f"the ledger cannot be reached: {place}: {first_line(error)}") from error

    # --- one request ---

    def _ask(
        self, method: str, name: str, operation: str, data: bytes | None = None, **more: str
    ) -> bytes:
        """Asks the active name node, and the data node that it names. Raises what `_PASSING` has."""
        query = urlencode({"op": operation, **dict(self._credentials), **more})
        target = f"/webhdfs/v1{quote(self._path(name))}?{query}"
        for _ in self._addresses[1:]:
            try:
                return self._at(self._addresses[0], method, target, data)
            except _PASSING as error:
                if isinstance(error, _HdfsError) and error.kind != _STANDBY:
                    raise
            self._addresses.append(self._addresses.pop(0))
        return self._at(self._addresses[0], method, target, data)

    def _at(self, address: str, method: str, target: str, data: bytes | None) -> bytes:
        # The name node wants no content: it names the data node that does.
        status, headers, content = self._send(address, method, target, None)
        if status == _REDIRECT:
            place = urlsplit(headers["Location"])
            status, _, content = self._send(
                place.netloc, method, f"{place.path}?{place.query}", data
            )
        if status in _OK:
            return content
        raise _error_in(status, content)

    def _send(
        self, address: str, method: str, target: str, data: bytes | None
    ) -> tuple[int, Any, bytes]:
        kind = http.client.HTTPSConnection if self._is_encrypted else http.client.HTTPConnection
        connection = kind(address, timeout=REQUEST_S)
        try:
            connection.request(method, target, data, {"Content-Type": "application/octet-stream"})
            answer = connection.getresponse()
            return answer.status, answer.headers, answer.read()
        finally:
            connection.close()


class _AbsentError(LedgerError):
    """The file or directory does not exist."""


def open_web_hdfs(uri: str, settings: StoreSettings) -> WebHdfsFiles:
    """Opens the files below `webhdfs://HOST:PORT/PATH`, or below an `hdfs://` URI. Raises `OptionError`."""
    unknown = sorted(settings.options.keys() - _OPTIONS)
    if unknown:
        raise OptionError(f"option ledger.{unknown[0]}: HDFS does not have it")
    parts = urlsplit(uri)
    named = settings.options.get(_NAME_NODES) or settings.hadoop.get(_HADOOP_NAME_NODE)
    if parts.scheme in WEB_SCHEMES:
        port = parts.port or _PORTS[parts.scheme]
        named = settings.options.get(_NAME_NODES) or f"{parts.hostname}:{port}"
    elif not named:
        named = f"{parts.hostname}:{_PORTS['webhdfs']}"
    addresses = [one.strip() for one in named.split(",")]
    return WebHdfsFiles(
        addresses,
        parts.path,
        is_encrypted=parts.scheme == "swebhdfs",
        credentials=_credentials(settings),
    )


def _is_final(error: Exception) -> bool:
    """Whether another attempt gets the same answer."""
    if isinstance(error, _HdfsError):
        return error.kind in _FINAL
    return isinstance(error, socket.gaierror)  # more likely misspelt than away


def _credentials(settings: StoreSettings) -> tuple[tuple[str, str], ...]:
    token = settings.options.get("webhdfs_token")
    if token:
        return (("delegation", token),)
    user = settings.options.get("webhdfs_user") or os.environ.get("HADOOP_USER_NAME")
    return (("user.name", user or getpass.getuser()),)


def _error_in(status: int, content: bytes) -> _HdfsError:
    try:
        found = json.loads(content)["RemoteException"]
        return _HdfsError(str(found["exception"]), str(found["message"]).partition("\n")[0])
    except (ValueError, KeyError, TypeError):
        return _HdfsError(f"HTTP {status}", content[:_MESSAGE_MAX].decode(errors="replace"))
