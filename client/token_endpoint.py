"""Asks a token endpoint for a token by client credentials (RFC 6749, section 4.4). Blocks; no redirections, no proxies.

No message and no log has the secret or a token: what the server says is shown only if it is an error code.
"""

from __future__ import annotations

import base64
import http.client
import json
import re
import ssl
from typing import Any, Final
from urllib.parse import SplitResult, quote_plus, urlencode, urlsplit

from echoless.client.connection_errors import AuthenticationError, ConnectionFailedError
from echoless.client.security import TokenEndpoint
from echoless.client.tls import trusting_context

TIMEOUT_S: Final = 10.0
"""Limit on connecting, and on each wait for the server."""
_ANSWER_BYTES_MAX: Final = 256 * 1024
_REFUSALS: Final = frozenset({400, 401, 403})
"""Statuses of a client that is refused: another attempt would end in the same way."""
_ERROR_CODE: Final = re.compile(r"[a-z_]{1,60}")


def request_token(endpoint: TokenEndpoint) -> tuple[str, float | None]:
    """A token, and for how many seconds it is valid, if the server says so.

    Raises `ConnectionFailedError`; `AuthenticationError` if the client or the server's certificate is refused.
    """
    parts = urlsplit(endpoint.url)
    connection = _connection(parts, endpoint)
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    fields = {"grant_type": "client_credentials"}
    if endpoint.scope:
        fields["scope"] = endpoint.scope
    try:
        connection.request("POST", path, urlencode(fields), _headers(endpoint))
        answer = connection.getresponse()
        data = answer.read(_ANSWER_BYTES_MAX + 1)
    except ssl.SSLCertVerificationError as error:
        raise AuthenticationError(
            f"the certificate of {endpoint.url} is refused: {error.verify_message}; "
            "does https.ca.location hold the authority that signed it?"
        ) from error
    except (OSError, http.client.HTTPException) as error:
        reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
        raise ConnectionFailedError(f"no token can be had from {endpoint.url}: {reason}") from error
    finally:
        connection.close()
    return _issued(endpoint, answer.status, data)


def _connection(parts: SplitResult, endpoint: TokenEndpoint) -> http.client.HTTPConnection:
    host = parts.hostname or ""
    if parts.scheme == "http":
        return http.client.HTTPConnection(host, parts.port, timeout=TIMEOUT_S)
    context = trusting_context(endpoint.ca_location, endpoint.ca_pem, "https.ca")
    return http.client.HTTPSConnection(host, parts.port, timeout=TIMEOUT_S, context=context)


def _headers(endpoint: TokenEndpoint) -> dict[str, str]:
    pair = [endpoint.client_id, endpoint.client_secret]
    if endpoint.encodes_header:
        pair = list(map(quote_plus, pair))
    credentials = base64.b64encode(":".join(pair).encode()).decode()
    return {
        "Authorization": f"Basic {credentials}",
        "Content-Type": "application/x-www-form-urlencoded",
        "Accept": "application/json",
    }


def _issued(endpoint: TokenEndpoint, status: int, data: bytes) -> tuple[str, float | None]:
    document = _document(data)
    if status in _REFUSALS:
        code = str(document.get("error", ""))
        said = f" {code}" if _ERROR_CODE.fullmatch(code) else ""
        raise AuthenticationError(
            f"{endpoint.url} refuses client {endpoint.client_id}: {status}{said}; "
            "are sasl.oauthbearer.client.id, client.secret and scope right?"
        )
    token, lasts_s = document.get("access_token"), document.get("expires_in")
    if status != http.client.OK or not isinstance(token, str):
        what = f"status {status}" if status != http.client.OK else "an answer without access_token"
        raise ConnectionFailedError(f"no token can be had from {endpoint.url}: {what}")
    if isinstance(lasts_s, bool) or not isinstance(lasts_s, int | float):
        lasts_s = None
    return token, lasts_s


def _document(data: bytes) -> dict[str, Any]:
    """Empty for what is no JSON object, or too long."""
    try:
        found = json.loads(data) if len(data) <= _ANSWER_BYTES_MAX else None
    except (ValueError, RecursionError):
        found = None
    return found if isinstance(found, dict) else {}
