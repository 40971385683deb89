"""The files of the console: read from the package when a browser first asks for one, and kept.

They hold nothing about the broker and need no token: the page asks for the data itself, with the token that its
user types. Their policy lets a browser load and contact this port alone, run no script that is not one of these
files, and turn no text into HTML.
"""

from __future__ import annotations

import hashlib
from http import HTTPStatus
from importlib.resources import files
from typing import Final, NamedTuple

from aiohttp import hdrs, web

from echoless.broker.admin.refusal import RefusalError
from echoless.broker.network.turns import in_thread

PATH: Final = "/console"
START_PAGE: Final = "index.html"
_HEADERS: Final = {
    hdrs.CACHE_CONTROL: "no-cache",
    "Content-Security-Policy": (
        "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
        "object-src 'none'; require-trusted-types-for 'script'; trusted-types picture"
    ),
    "Cross-Origin-Opener-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
}
_TYPES: Final = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}


class _File(NamedTuple):
    content: bytes
    content_type: str
    etag: str


class ConsoleFiles:
    """The files, by name; none is in memory before the first request."""

    def __init__(self) -> None:
        self._files: dict[str, _File] | None = None

    def routes(self) -> list[web.RouteDef]:
        """The routes of the methods below."""
        return [
            web.get(PATH, self.page),
            *(web.get(f"{PATH}/{name}", _lead_to_page) for name in ("", START_PAGE)),
            web.get(PATH + "/{name}", self.file),
        ]

    async def page(self, request: web.Request) -> web.Response:
        """The page itself."""
        return await self._answer(request, START_PAGE)

    async def file(self, request: web.Request) -> web.Response:
        """A file that the page loads."""
        return await self._answer(request, request.match_info["name"])

    async def _answer(self, request: web.Request, name: str) -> web.Response:
        if self._files is None:
            self._files = await in_thread(_read_all)
        found = self._files.get(name)
        if found is None:
            raise RefusalError(HTTPStatus.NOT_FOUND, f"the console has no file {name!r}")
        headers = {**_HEADERS, hdrs.ETAG: found.etag}
        if found.etag in request.headers.get(hdrs.IF_NONE_MATCH, ""):
            return web.Response(status=HTTPStatus.NOT_MODIFIED, headers=headers)
        headers[hdrs.CONTENT_TYPE] = found.content_type
        return web.Response(body=found.content, headers=headers)


def is_console(path: str) -> bool:
    """Whether the path is the console's, which any browser may load."""
    return path == PATH or path.startswith(PATH + "/")


def wants_page(request: web.Request) -> bool:
    """Whether a person's browser asks, which shows pages better than JSON."""
    return "text/html" in request.headers.get(hdrs.ACCEPT, "")


async def _lead_to_page(_: web.Request) -> web.Response:
    """Sends a browser to the one address from which the page finds its files."""
    return web.Response(status=HTTPStatus.FOUND, headers={hdrs.LOCATION: PATH})


def _read_all() -> dict[str, _File]:
    directory = files("echoless.broker.admin") / "console"
    found = {}
    for entry in directory.iterdir():
        content_type = _TYPES.get("." + entry.name.rpartition(".")[2])
        if content_type is not None:
            content = entry.read_bytes()
            etag = f'"{hashlib.sha256(content).hexdigest()[:32]}"'
            found[entry.name] = _File(content, content_type, etag)
    return found
