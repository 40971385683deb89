"""Files of the ledger on HDFS by libhdfs, through pyarrow: written under another name, then renamed."""

from __future__ import annotations

import uuid
from contextlib import suppress
from typing import Any, Final

from pyarrow import fs

from echoless.pipeline.exactly_once.errors import OptionError, first_line, unreachable
from echoless.pipeline.exactly_once.store_settings import StoreSettings
from echoless.pipeline.exactly_once.web_hdfs_files import WebHdfsFiles, open_web_hdfs

_NO_LIBRARY: Final = "load lib"


def open_hdfs(uri: str, settings: StoreSettings) -> ArrowFiles | WebHdfsFiles:
    """Opens the files at an `hdfs://` URI: by libhdfs, unless there is none or an option is about WebHDFS. Raises `OptionError`."""
    if settings.options:
        return open_web_hdfs(uri, settings)
    try:
        system, path = fs.FileSystem.from_uri(uri)
    except (OSError, ValueError) as error:
        if _NO_LIBRARY in first_line(error):
            return open_web_hdfs(uri, settings)
        raise OptionError(f"ledger {uri}: {first_line(error)}") from error
    return ArrowFiles(system, path)


class ArrowFiles:
    """Files in a file system of pyarrow that renames nothing onto a file that exists."""

    def __init__(self, system: Any, root: str) -> None:
        self._system = system
        self._root = root.rstrip("/")

    def list(self, directory: str) -> list[str]:
        selector = fs.FileSelector(f"{self._root}/{directory}", allow_not_found=True)
        try:
            found = self._system.get_file_info(selector)
        except OSError as error:
            raise unreachable(error) from error
        return sorted(one.base_name for one in found if not one.base_name.startswith("."))

    def read(self, name: str) -> bytes:
        try:
            with self._system.open_input_stream(f"{self._root}/{name}") as file:
                return bytes(file.read())
        except OSError as error:
            raise unreachable(error) from error

    def find(self, name: str) -> bytes | None:
        try:
            return self.read(name) if self._exists(f"{self._root}/{name}") else None
        except OSError as error:
            raise unreachable(error) from error

    def create(self, name: str, data: bytes) -> bool:
        target = f"{self._root}/{name}"
        directory, _, base = target.rpartition("/")
        unique = f"{directory}/.{base}.{uuid.uuid4().hex}"
        try:
            if self._exists(target):
                return False
            self._system.create_dir(directory, recursive=True)
            with self._system.open_output_stream(unique) as file:
                file.write(data)
            return self._rename(unique, target)
        except OSError as error:
            raise unreachable(error) from error

    def delete(self, name: str) -> None:
        with suppress(OSError):
            self._system.delete_file(f"{self._root}/{name}")

    def _rename(self, unique: str, target: str) -> bool:
        try:
            self._system.move(unique, target)
        except OSError:
            with suppress(OSError):
                self._system.delete_file(unique)
            if self._exists(target):
                return False
            raise
        return True

    def _exists(self, path: str) -> bool:
        return bool(self._system.get_file_info(path).type is not fs.FileType.NotFound)
