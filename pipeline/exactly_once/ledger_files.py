"""Files of the ledger on any file system: listed, read, created once, deleted.

Everything depends on `create`: of several attempts to create the same file exactly one succeeds, and a file that
can be read is complete. Tasks have no JVM, so these are not Hadoop's file systems:

| where | file | how a file is created once |
|---|---|---|
| a local or mounted directory | `local_files.py` | a link, which replaces nothing |
| HDFS | `arrow_files.py` (libhdfs), `web_hdfs_files.py` | a rename, which HDFS refuses if the target exists |
| S3, Azure, Google Cloud Storage | `object_store_files.py` | a put on condition that there is none |

Whether a store keeps its promise is tried when a ledger is made (`check_conditions`).
"""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Final, Protocol

from echoless.pipeline.exactly_once.errors import OptionError
from echoless.pipeline.exactly_once.local_files import LocalFiles
from echoless.pipeline.exactly_once.store_settings import (
    NO_SETTINGS,
    OBJECT_STORES,
    WEB_SCHEMES,
    StoreSettings,
)

_LOCAL: Final = "file"
_LIBHDFS: Final = ("hdfs", "viewfs")


class LedgerFiles(Protocol):
    """Named files. Names are relative, with slashes. All methods raise `LedgerError` on I/O errors."""

    def list(self, directory: str) -> list[str]:
        """Lists the names in a directory in order; none if there is no such directory."""

    def read(self, name: str) -> bytes:
        """Returns the content of a file."""

    def find(self, name: str) -> bytes | None:
        """Returns the content of a file; None: there is none."""

    def create(self, name: str, data: bytes) -> bool:
        """Creates the file if there is none of this name; returns whether it did."""

    def delete(self, name: str) -> None:
        """Deletes the file, if it exists."""


def open_ledger_files(
    uri: str, settings: StoreSettings = NO_SETTINGS, *, has_single_writer: bool = False
) -> LedgerFiles:
    """Opens the files at a path or URI. Raises `OptionError`.

    `has_single_writer`: no two attempts ever run at once, so that a store without conditions will do.
    """
    scheme, separator, rest = uri.partition(":")
    if not separator or "/" in scheme or scheme == _LOCAL:
        if settings.options:
            name = min(settings.options)
            raise OptionError(
                f"option ledger.{name}: {uri} is a directory, which has no such options"
            )
        return LocalFiles(Path(_local_path(rest) if scheme == _LOCAL else uri))
    if scheme in OBJECT_STORES:
        try:
            from echoless.pipeline.exactly_once.object_store_files import open_object_store  # noqa: PLC0415 - the extra objectstore
        except ModuleNotFoundError as error:
            raise OptionError(
                f"ledger {uri}: {scheme}:// needs the extra objectstore on every machine: "
                "pip install 'echoless[objectstore]'"
            ) from error
        return open_object_store(uri, settings, is_conditional=not has_single_writer)
    if scheme in WEB_SCHEMES:
        from echoless.pipeline.exactly_once.web_hdfs_files import open_web_hdfs  # noqa: PLC0415 - http.client

        return open_web_hdfs(uri, settings)
    if scheme in _LIBHDFS:
        from echoless.pipeline.exactly_once.arrow_files import open_hdfs  # noqa: PLC0415 - pyarrow

        return open_hdfs(uri, settings)
    raise OptionError(
        f"ledger {uri}: {scheme}:// is not known; a ledger is in a directory that all machines share, or at hdfs://, "
        "webhdfs://, s3a://, abfss:// or gs://"
    )


def check_conditions(files: LedgerFiles, directory: str, uri: str) -> None:
    """Tries whether a file is created only once. Raises `OptionError` if not."""
    name = f"{directory}/probe-{uuid.uuid4().hex}"
    try:
        is_first, is_second = files.create(name, b"1"), files.create(name, b"2")
    finally:
        files.delete(name)
    if not is_first or is_second:
        raise OptionError(
            f"ledger {uri}: this store creates a file where there is one already, and two attempts at once would both "
            "continue: use another, or, if speculation is off and the query is never started twice, set "
            "ledgerSingleWriter=true"
        )


def absolute_location(uri: str) -> str:
    """Makes a path absolute, so that it means the same in any working directory; a URI stays as it is."""
    scheme, separator, _ = uri.partition(":")
    return uri if separator and "/" not in scheme else str(Path(uri).absolute())


def _local_path(rest: str) -> str:
    """Returns the path in a file URI; `/a` and `///a` are the same."""
    return "/" + rest.lstrip("/")
