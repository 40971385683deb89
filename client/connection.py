"""A blocking connection to one Kafka broker: one request, one answer. For commands, not for load.

The versions of each API are negotiated when the connection opens; a request is then written in the
newest version that both sides know. Requests are given as plain mappings of the newest version's
fields (times are integer milliseconds) and answers come back as kio entities; fields that the
chosen version does not have are left out. Importing this file imports kio: 80 ms.

Works with every Kafka broker. Knows no retries and no cluster; whoever needs the leader of a
partition opens a connection to it.
"""

from __future__ import annotations

import importlib
import io
import socket
import struct
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Final, Self

from kio.schema.index import schema_name_map
from kio.serial import entity_reader, entity_writer
from kio.serial.errors import SerialError

from protocol.entities import entity_builder
from protocol.errors import DecodeError
from protocol.headers import skip_tagged_fields

TIMEOUT_S_DEFAULT: Final = 10.0
ANSWER_BYTES_MAX: Final = 256 * 1024 * 1024
CLIENT_ID: Final = "echoless"

_LENGTH: Final = struct.Struct(">i")
_REQUEST_HEADER: Final = struct.Struct(">hhih")
_API_VERSIONS: Final = "api_versions"
_NOT_KAFKA: Final = "does not speak the Kafka protocol; use the broker's --listen address"


class ConnectionFailedError(Exception):
    """There is no talking to the broker; the message is one line that says why, and what to try."""


class Connection:
    """An open connection whose API versions are known. Use it in a `with` block."""

    def __init__(self, sock: socket.socket, address: str) -> None:
        self.address = address
        self._socket = sock
        self._correlation_id = 0
        self._served: dict[int, tuple[int, int]] = {}

    @classmethod
    def open(cls, host: str, port: int, timeout_s: float = TIMEOUT_S_DEFAULT) -> Self:
        """Connects and asks for the API versions. Raises `ConnectionFailedError`."""
        address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        try:
            sock = socket.create_connection((host, port), timeout_s)
        except OSError as error:
            reason = error.strerror or str(error)
            raise ConnectionFailedError(
                f"no broker can be reached at {address} ({reason}); "
                f"is it running, and is this its --listen address?"
            ) from error
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection = cls(sock, address)
        try:
            connection._negotiate()
        except BaseException:
            connection.close()
            raise
        return connection

    def request(self, api: str, fields: Mapping[str, Any]) -> Any:
        """Sends one request and waits for its answer.

        `api` is kio's name (`create_topics`). Raises `ConnectionFailedError` when the broker does
        not serve the API, does not answer in time or ends the connection.
        """
        return self._exchange(api, self._version(api), fields)

    def close(self) -> None:
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _negotiate(self) -> None:
        # Version 0 is served by every broker since 0.10, and tells the same.
        answer = self._exchange(_API_VERSIONS, 0, {})
        self._served = {a.api_key: (a.min_version, a.max_version) for a in answer.api_keys}

    def _version(self, api: str) -> int:
        known = schema_name_map[api]
        key = _schema(api, max(known), "request").__api_key__
        least, most = self._served.get(key, (0, -1))
        shared = [version for version in known if least <= version <= most]
        if not shared:
            raise ConnectionFailedError(f"the broker at {self.address} does not serve {api}")
        return max(shared)

    def _exchange(self, api: str, version: int, fields: Mapping[str, Any]) -> Any:
        self._correlation_id += 1
        try:
            self._socket.sendall(self._framed(api, version, fields))
            return self._read_answer(api, version)
        except TimeoutError as error:
            raise ConnectionFailedError(
                f"{self.address} did not answer {api} within {self._socket.gettimeout():g} s"
            ) from error
        except (OSError, DecodeError) as error:
            raise ConnectionFailedError(f"{self.address}: {error}") from error

    def _framed(self, api: str, version: int, fields: Mapping[str, Any]) -> bytes:
        cls = _schema(api, version, "request")
        client_id = CLIENT_ID.encode()
        out = io.BytesIO()
        out.write(
            _REQUEST_HEADER.pack(cls.__api_key__, version, self._correlation_id, len(client_id))
        )
        out.write(client_id)
        if cls.__header_schema__.__flexible__:
            out.write(b"\0")
        entity_writer(cls)(out, entity_builder(cls)(fields))
        return _LENGTH.pack(out.tell()) + out.getvalue()

    def _read_answer(self, api: str, version: int) -> Any:
        frame = self._read_frame()
        cls = _schema(api, version, "response")
        position = _LENGTH.size
        if _LENGTH.unpack_from(frame)[0] != self._correlation_id:
            raise DecodeError(_NOT_KAFKA)
        if cls.__header_schema__.__flexible__:
            position = skip_tagged_fields(frame, position)
        try:
            entity, _ = entity_reader(cls)(frame, position)
        except (SerialError, ValueError, OverflowError) as error:
            raise DecodeError(f"the answer to {api} v{version} cannot be read: {error}") from error
        return entity

    def _read_frame(self) -> bytes:
        (size,) = _LENGTH.unpack(self._read_exactly(_LENGTH.size))
        if not _LENGTH.size <= size <= ANSWER_BYTES_MAX:
            raise DecodeError(_NOT_KAFKA)
        return self._read_exactly(size)

    def _read_exactly(self, size: int) -> bytes:
        buffer = bytearray()
        while len(buffer) < size:
            part = self._socket.recv(min(size - len(buffer), 1 << 20))
            if not part:
                what = "ended the connection" if self._served else _NOT_KAFKA
                raise DecodeError(what)
            buffer += part
        return bytes(buffer)


def _schema(api: str, version: int, kind: str) -> Any:
    """kio's class for a request or response, e.g. `CreateTopicsRequest` of version 7."""
    module = importlib.import_module(f"kio.schema.{api}.v{version}.{kind}")
    return getattr(module, "".join(map(str.capitalize, [*api.split("_"), kind])))
