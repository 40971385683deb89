"""Files of the ledger in an object store: S3 and what speaks it, Azure, Google Cloud Storage.

A put of one small object is atomic, so the object is the file. It is created with the condition that there is none of
its name (`If-None-Match: *`). What makes that safe:

* Each creation has an id of its own, stored as metadata of the object. An attempt whose answer was lost finds its own id
  there, and knows that it has won.
* A refusal counts only once the object that has won can be read: S3 also refuses (409) where nothing has been stored.
* After an error nothing is known, so the creation is repeated under the same id. What gives up at last leaves at most an
  entry that no one works on, as a task does that dies.

Credentials are obstore's matter: the environment, roles of the machine, `store_settings.py`. They are in no message.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from typing import Any, Final, TypeVar

import obstore
from obstore.exceptions import (
    AlreadyExistsError,
    BaseError,
    InvalidPathError,
    NotSupportedError,
    PermissionDeniedError,
    PreconditionError,
    UnauthenticatedError,
    UnknownConfigurationKeyError,
)
from obstore.store import from_url

from echoless.pipeline.exactly_once.errors import LedgerError, OptionError, first_line
from echoless.pipeline.exactly_once.repetition import REQUEST_S, repeated
from echoless.pipeline.exactly_once.store_settings import StoreSettings, store_config

_ID: Final = "echolessattempt"
"""Name of the metadata; Azure allows neither dots nor dashes in it."""
_FINAL: Final = (
    FileNotFoundError,  # which obstore raises in place of its own
    InvalidPathError,
    NotSupportedError,
    PermissionDeniedError,
    UnauthenticatedError,
    UnknownConfigurationKeyError,
)
_ADDRESSES: Final = ("endpoint", "base_url")
"""Settings that have a server's address; the second is Google's."""
_REFUSED: Final = re.compile(r"status code: 40[0-7]\b")
_QUERY: Final = re.compile(r"\?[^\s\"')]*")

_Result = TypeVar("_Result")


class _ConflictError(Exception):
    """A store has refused a creation, and has nothing of that name."""


_ERRORS: Final = (BaseError, OSError, _ConflictError)


class ObjectStoreFiles:
    """Files below one prefix of a bucket or container."""

    def __init__(self, store: Any, uri: str, *, is_conditional: bool = True) -> None:
        """`store`: one of obstore's, at the prefix. Without `is_conditional` nothing may create a file at the same time."""
        self._store = store
        self._uri = uri
        self._is_conditional = is_conditional

    def list(self, directory: str) -> list[str]:
        found = self._repeat(lambda: obstore.list_with_delimiter(self._store, directory))
        paths = [*(one["path"] for one in found["objects"]), *found["common_prefixes"]]
        names = (path.rstrip("/").rpartition("/")[2] for path in paths)
        return sorted(name for name in names if not name.startswith("."))

    def read(self, name: str) -> bytes:
        return self._repeat(lambda: bytes(obstore.get(self._store, name).bytes()))

    def find(self, name: str) -> bytes | None:
        return self._repeat(lambda: self._content(name))

    def create(self, name: str, data: bytes) -> bool:
        attempt = uuid.uuid4().hex
        put = self._put_new if self._is_conditional else self._put_alone
        return self._repeat(lambda: put(name, data, attempt))

    def delete(self, name: str) -> None:
        with suppress(BaseError, OSError):  # what stays is found again by the next that cleans up
            obstore.delete(self._store, name)

    def _content(self, name: str) -> bytes | None:
        try:
            return bytes(obstore.get(self._store, name).bytes())
        except FileNotFoundError:
            return None

    def _put_new(self, name: str, data: bytes, attempt: str) -> bool:
        attributes = {_ID: attempt}
        try:
            obstore.put(
                self._store, name, data, mode="create", attributes=attributes, use_multipart=False
            )
        except (AlreadyExistsError, PreconditionError) as error:
            creator = self._creator(name)
            if creator is None:
                raise _ConflictError(f"{name} was refused, and is not there") from error
            return creator == attempt
        return True

    def _put_alone(self, name: str, data: bytes, attempt: str) -> bool:
        """Creates the file where the store has no condition, and the caller guarantees that it is alone."""
        creator = self._creator(name)
        if creator is None:
            obstore.put(self._store, name, data, attributes={_ID: attempt}, use_multipart=False)
        return creator in (None, attempt)

    def _creator(self, name: str) -> str | None:
        """Returns the id of the creation that the object comes from, empty if it has none; None: there is no object."""
        try:
            return str(obstore.get(self._store, name).attributes.get(_ID, ""))
        except FileNotFoundError:
            return None

    def _repeat(self, ask: Callable[[], _Result]) -> _Result:
        """Asks until there is an answer. Raises `LedgerError` if that is an error, or there is none."""
        try:
            return repeated(ask, _ERRORS, _is_final)
        except _ERRORS as error:
            message = f"the ledger cannot be reached: {self._uri}: {_line(error)}"
            raise LedgerError(message) from error


def _is_final(error: Exception) -> bool:
    """Whether another attempt gets the same answer; obstore has no type for some that say no."""
    return isinstance(error, _FINAL) or _REFUSED.search(str(error)) is not None


def open_object_store(
    uri: str, settings: StoreSettings, *, is_conditional: bool
) -> ObjectStoreFiles:
    """Opens the files below a URI. Raises `OptionError`."""
    try:
        config: Any = store_config(uri, settings)
        store = from_url(
            uri.replace("gcs://", "gs://", 1),
            config=config,
            client_options={
                "allow_http": any(
                    str(config.get(name, "")).startswith("http://") for name in _ADDRESSES
                ),
                "timeout": timedelta(seconds=REQUEST_S),
                "connect_timeout": timedelta(seconds=REQUEST_S),
            },
            retry_config={"max_retries": 0, "retry_timeout": timedelta(seconds=REQUEST_S)},
        )
    except (BaseError, ValueError) as error:
        raise OptionError(f"ledger {uri}: {_line(error)}") from error
    return ObjectStoreFiles(store, uri, is_conditional=is_conditional)


def _line(error: Exception) -> str:
    """Returns the first line of a message without queries of addresses, which may have a signature in them."""
    return _QUERY.sub("", first_line(error))
