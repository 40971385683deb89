"""A broker's admin port for tests: JSON over HTTP, and the stream of decisions.

Standard library only, and one connection per request: nothing to close. `docs/admin.md` has the
paths.
"""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from typing import Any, Final
from urllib.parse import urlencode

_TIMEOUT_S: Final = 10.0


class AdminError(Exception):
    """The broker refused, or did not answer. Names the URL and the response."""

    def __init__(self, url: str, said: str, status: int | None = None) -> None:
        super().__init__(f"{url}: {said}")
        self.status = status
        """The HTTP status; None without an answer."""


class Admin:
    """The admin port at `address` (`host:port`). Thread-safe: it is stateless."""

    def __init__(
        self, address: str, *, timeout_s: float = _TIMEOUT_S, token: str | None = None
    ) -> None:
        """`token`: one of the broker's `admin_token_file`, if it has one."""
        self.address = address
        self._headers = authorization(token)
        self._timeout_s = timeout_s

    def get(self, path: str, **query: object) -> Any:
        """The JSON at `path`; a `None` in the query is left out."""
        return self._call("GET", _with_query(path, query))

    def post(self, path: str, body: object) -> Any:
        return self._call("POST", path, body)

    def delete(self, path: str) -> Any:
        return self._call("DELETE", path)

    def follow_decisions(
        self, *, timeout_s: float | None = None, **query: object
    ) -> Iterator[dict[str, Any]]:
        """Yields each decision and fault as it happens, after the remembered ones.

        Ends with the broker. Raises `AdminError` if nothing came for `timeout_s` seconds.
        """
        path = _with_query("/decisions", {"follow": "true", **query})
        connection = http.client.HTTPConnection(self.address, timeout=timeout_s)
        try:
            answer = self._answer(connection, "GET", path, None)
            while line := answer.readline():
                yield json.loads(line)
        except (OSError, http.client.HTTPException) as error:
            raise AdminError(self._url(path), str(error) or repr(error)) from error
        finally:
            connection.close()

    def _call(self, method: str, path: str, body: object = None) -> Any:
        connection = http.client.HTTPConnection(self.address, timeout=self._timeout_s)
        try:
            text = self._answer(connection, method, path, body).read()
        except (OSError, http.client.HTTPException) as error:
            raise AdminError(self._url(path), str(error) or repr(error)) from error
        finally:
            connection.close()
        return json.loads(text) if text else None

    def _answer(
        self, connection: http.client.HTTPConnection, method: str, path: str, body: object
    ) -> http.client.HTTPResponse:
        content = None if body is None else json.dumps(body)
        headers = {} if body is None else {"Content-Type": "application/json"}
        connection.request(method, path, content, {**self._headers, **headers})
        answer = connection.getresponse()
        if answer.status >= http.HTTPStatus.BAD_REQUEST:
            raise AdminError(self._url(path), _reason(answer), answer.status)
        return answer

    def _url(self, path: str) -> str:
        return f"http://{self.address}{path}"


def authorization(token: str | None) -> dict[str, str]:
    """The header with the token, if there is one."""
    return {} if token is None else {"Authorization": f"Bearer {token}"}


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
