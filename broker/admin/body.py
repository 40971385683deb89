"""The JSON body of a request: one content type, bounded in size and time."""

from __future__ import annotations

import asyncio
import json
from http import HTTPStatus
from typing import Any, Final

from aiohttp import hdrs, web

from echoless.broker.admin.refusal import RefusalError

BODY_BYTES_MAX: Final = 256 * 1024
"""Enough for about a thousand rules; the body is parsed on the event loop."""
BODY_TIMEOUT_S: Final = 10.0

_TYPE: Final = "application/json"


async def read_json(request: web.Request) -> Any:
    """The parsed body. Raises `RefusalError` 400, 408, 413 or 415."""
    given = request.headers.get(hdrs.CONTENT_TYPE)
    if given is None or request.content_type != _TYPE:
        # The other types are those that a page may send to any site without a preflight request.
        raise RefusalError(
            HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
            f"Content-Type: takes {_TYPE}, not {given or 'nothing'} (curl --json sends it)",
        )
    if hdrs.CONTENT_ENCODING in request.headers:
        raise RefusalError(
            HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "Content-Encoding: the body must not be compressed"
        )
    try:
        async with asyncio.timeout(BODY_TIMEOUT_S):
            data = await request.read()
    except TimeoutError as error:
        raise RefusalError(
            HTTPStatus.REQUEST_TIMEOUT, f"the body did not arrive within {BODY_TIMEOUT_S:g} s"
        ) from error
    except web.HTTPRequestEntityTooLarge as error:
        raise RefusalError(
            HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"the body takes at most {BODY_BYTES_MAX} bytes"
        ) from error
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:  # also if not UTF-8, or nested too deeply
        raise RefusalError(HTTPStatus.BAD_REQUEST, f"the body is not JSON: {error}") from error
