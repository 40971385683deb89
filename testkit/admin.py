"""A broker's admin port for tests: JSON over HTTP, and the stream of decisions.

Standard library only, and one connection per request: nothing to close. `docs/admin.md` has the
paths.
"""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlencode

if TYPE_CHECKING:
    from ssl import SSLContext

_TIMEOUT_S: Final = 10.0


class AdminError(Exception):
    """The broker refused, or did not answer. Names the URL and the response."""

    def __init__(self, url: str, said: str, status: int | None = None) -> None:
        super().__init__(f"{url}: {said}")
        self.status = status
        """The HTTP status; None without an answer."""


class Admin:
    """A broker's admin port (`docs/admin.md`), blocking: JSON over HTTP. Thread-safe: it is stateless."""

    def __init__(
        self,
        address: str,
        *,
        timeout_s: float = _TIMEOUT_S,
        token: str | None = None,
        tls: SSLContext | None = None,
    ) -> None:
        """`address` is `host:port`. `token`: one of the broker's `admin_token_file`. `tls`: None for plain HTTP."""
        self.address = address
        self._tls = tls
        self.headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        """The headers that every request needs."""
        self._timeout_s = timeout_s

    def get(self, path: str, **query: object) -> Any:
        """The JSON at `path`; a `None` in the query is left out. Raises `AdminError`."""
        return self._call("GET", _with_query(path, query))

    def post(self, path: str, body: object) -> Any:
        """The answer to `body`, sent as JSON. Raises `AdminError`."""
        return self._call("POST", path, body)

    def put(self, path: str, body: object) -> Any:
        """The answer to `body`, sent as JSON by PUT. Raises `AdminError`."""
        return self._call("PUT", path, body)

    def delete(self, path: str) -> Any:
        """The answer to DELETE. Raises `AdminError`."""
        return self._call("DELETE", path)

    def follow_decisions(
        self, *, timeout_s: float | None = None, **query: object
    ) -> Iterator[dict[str, Any]]:
        """Yields each decision and fault as it happens, after the remembered ones.

        Ends with the broker. Raises `AdminError` if nothing came for `timeout_s` seconds.
        """
        path = _with_query("/decisions", {"follow": "true", **query})
        connection = self.connection(timeout_s)
        try:
            answer = self._answer(connection, "GET", path, None)
            while line := answer.readline():
                yield json.loads(line)
        except (OSError, http.client.HTTPException) as error:
            raise AdminError(self.url(path), reason_of(error)) from error
        finally:
            connection.close()

    def _call(self, method: str, path: str, body: object = None) -> Any:
        connection = self.connection(self._timeout_s)
        try:
            text = self._answer(connection, method, path, body).read()
        except (OSError, http.client.HTTPException) as error:
            raise AdminError(self.url(path), reason_of(error)) from error
        finally:
            connection.close()
        return json.loads(text) if text else None

    def _answer(
        self, connection: http.client.HTTPConnection, method: str, path: str, body: object
    ) -> http.client.HTTPResponse:
        content = None if body is None else json.dumps(body)
        headers = {} if body is None else {"Content-Type": "application/json"}
        connection.request(method, path, content, {**self.headers, **headers})
        answer = connection.getresponse()
        if answer.status >= http.HTTPStatus.BAD_REQUEST:
            raise AdminError(self.url(path), _reason(answer), answer.status)
        return answer

    def connection(self, timeout_s: float | None) -> http.client.HTTPConnection:
        """A connection that its first request opens."""
        if self._tls is None:
            return http.client.HTTPConnection(self.address, timeout=timeout_s)
        return http.client.HTTPSConnection(self.address, timeout=timeout_s, context=self._tls)

    def url(self, path: str) -> str:
        """The URL of a path, for messages."""
        return f"{'http' if self._tls is None else 'https'}://{self.address}{path}"


def reason_of(error: Exception) -> str:
    """An error of the connection in words."""
    return getattr(error, "strerror", None) or str(error) or repr(error)


def _with_query(path: str, query: dict[str, object]) -> str:
    given = {name: value for name, value in query.items() if value is not None}
    return f"{path}?{urlencode(given)}" if given else path


def _reason(answer: http.client.HTTPResponse) -> str:
    """The broker's own error message, if it sent one."""
    text = answer.read().decode(errors="replace")
    try:
        return f"{answer.status}: {json.loads(text)['error']}"
    except (ValueError, KeyError, TypeError):
        return f"{answer.status}: {text or answer.reason}"
