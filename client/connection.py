"""A blocking connection to one Kafka broker: one request, one answer. For commands, not for load.

The versions of each API are negotiated when the connection opens; a request is then written in the
newest version that both sides know. Requests are given as plain mappings of the newest version's
fields (times are integer milliseconds) and answers come back as kio entities; fields that the
chosen version does not have are left out. Importing this file imports kio: 80 ms.

Works with every Kafka broker. Does not retry and knows no cluster; a caller that needs the leader of a
partition opens a connection to it.
"""

from __future__ import annotations

import math
import socket
import time
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Final, Self

from echoless.client.connection_errors import AuthenticationError, ConnectionFailedError
from echoless.client.log_in import RENEWED_AT, LoggingIn, exchange_of
from echoless.client.messages import (
    API_VERSIONS,
    LENGTH,
    NOT_KAFKA,
    ServedVersions,
    UnservedApiError,
    answer_size,
    decode_answer,
    encode_request,
    newest_version,
    served_versions,
)
from echoless.client.security import NO_SECURITY, Security
from echoless.client.software import NAMED_FROM, software_fields
from echoless.protocol.errors import DecodeError

__all__ = ["TIMEOUT_S_DEFAULT", "AuthenticationError", "BrokerConnection", "ConnectionFailedError"]

TIMEOUT_S_DEFAULT: Final = 10.0


class BrokerConnection:
    """An open connection with negotiated API versions. Use it in a `with` block."""

    def __init__(self, sock: socket.socket, address: str, security: Security) -> None:
        self.address = address
        self._socket = sock
        self._security = security
        self._correlation_id = 0
        self._served: ServedVersions = {}
        self._renewal_at = math.inf
        """When to log in again, by the monotonic clock."""

    @classmethod
    def open(
        cls,
        host: str,
        port: int,
        timeout_s: float = TIMEOUT_S_DEFAULT,
        security: Security = NO_SECURITY,
        *,
        connect_timeout_s: float = math.inf,
    ) -> Self:
        """Connects, asks for the API versions and logs in. `connect_timeout_s` is the limit of the first, if it is less.

        Raises `ConnectionFailedError`; `AuthenticationError` if another attempt would fail, too.
        """
        address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        try:
            sock = socket.create_connection((host, port), min(timeout_s, connect_timeout_s))
        except OSError as error:
            reason = error.strerror or str(error) or type(error).__name__
            raise ConnectionFailedError(
                f"no broker can be reached at {address} ({reason}); "
                f"is it running, and is this its --listen address?"
            ) from error
        sock.settimeout(timeout_s)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection = cls(sock, address, security)
        try:
            connection._encrypt(host)
            connection._negotiate()
            connection._log_in()
        except BaseException:
            connection.close()
            raise
        return connection

    def request(self, api: str, fields: Mapping[str, Any], version_max: int | None = None) -> Any:
        """Sends one request and waits for its answer.

        `api` is kio's name (`create_topics`); `version_max` limits its version. Raises `ConnectionFailedError` when the broker does
        not serve the API, does not answer in time or ends the connection.
        """
        if time.monotonic() >= self._renewal_at:
            self._log_in()
        version = self._version(api)
        if version_max is not None:
            version = min(version, version_max)
        return self._exchange(api, version, fields)

    def detach(self) -> socket.socket:
        """Leaves the socket, which has logged in, to the caller."""
        return self._socket

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

    def _encrypt(self, host: str) -> None:
        tls = self._security.tls
        if tls is None:
            return
        from echoless.client.tls import handshake_failure, tls_context  # noqa: PLC0415  65 ms that few need

        context = tls_context(tls)
        try:
            self._socket = context.wrap_socket(self._socket, server_hostname=host)
        except TimeoutError as error:
            raise ConnectionFailedError(
                f"{self.address} did not answer the TLS handshake within "
                f"{self._socket.gettimeout():g} s"
            ) from error
        except OSError as error:
            raise handshake_failure(error, self.address) or ConnectionFailedError(
                f"{self.address} ended the TLS handshake; does it speak TLS there?"
            ) from error

    def _log_in(self) -> None:
        """Logs in, again if the session is about to end; does nothing without a user."""
        login = self._security.login
        if login is None:
            return
        exchange = exchange_of(login)
        began = time.monotonic()
        logging_in = LoggingIn(login, exchange, self.address)
        while logging_in.request is not None:
            api, fields = logging_in.request
            logging_in.take(self._exchange(api, self._version(api), fields))
        if logging_in.session_s:
            self._renewal_at = began + logging_in.session_s * RENEWED_AT

    def _negotiate(self) -> None:
        # Version 0 is served by every broker since 0.10, and returns the same.
        self._served = (
            served_versions(self._exchange(API_VERSIONS, NAMED_FROM, software_fields()))
            or served_versions(self._exchange(API_VERSIONS, 0, {}))
            or {}
        )

    def _version(self, api: str) -> int:
        try:
            return newest_version(api, self._served)
        except UnservedApiError as error:
            raise ConnectionFailedError(f"the broker at {self.address} {error}") from error

    def _exchange(self, api: str, version: int, fields: Mapping[str, Any]) -> Any:
        self._correlation_id += 1
        try:
            self._socket.sendall(encode_request(api, version, self._correlation_id, fields))
            frame = self._read_exactly(answer_size(self._read_exactly(LENGTH.size)))
            return decode_answer(api, version, self._correlation_id, frame)
        except TimeoutError as error:
            raise ConnectionFailedError(
                f"{self.address} did not answer {api} within {self._socket.gettimeout():g} s"
            ) from error
        except (OSError, DecodeError) as error:
            raise self._failure(error) from error

    def _failure(self, error: Exception) -> ConnectionFailedError:
        if self._security.tls is not None:
            from echoless.client.tls import handshake_failure  # noqa: PLC0415  65 ms that few need

            # With TLS 1.3 a client learns only here that its certificate was refused.
            found = handshake_failure(error, self.address)
            if found is not None:
                return found
        return ConnectionFailedError(f"{self.address}: {error}")

    def _read_exactly(self, size: int) -> memoryview:
        """Receives into memory of that size; nothing is copied after that."""
        view, received = memoryview(bytearray(size)), 0
        while received < size:
            count = self._socket.recv_into(view[received:])
            if not count:
                what = "ended the connection" if self._served else NOT_KAFKA
                raise DecodeError(what)
            received += count
        return view.toreadonly()
