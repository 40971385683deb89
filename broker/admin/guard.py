"""Keeps web pages out of the admin port, judging each request by its headers alone.

A browser sends whatever a page tells it to, to any address that its machine can reach, loopback
included. But it states truthfully where the page came from, and that is what is checked:

* `Host` must name this broker. A page whose own name was made to resolve to our address (DNS
  rebinding) is "same origin" to the browser, but its requests still carry its own name. An address
  is always accepted, because no one can point an address elsewhere.
* `Origin` and `Sec-Fetch-Site` must say that no other site is asking. Following a link to this port
  is the exception: the page that holds the link sees nothing of the answer.

Programs send neither `Origin` nor `Sec-Fetch-Site` and are unaffected. Every answer carries
`SAFE_HEADERS`, and none a CORS header. Requests that change something must be JSON (`body.py`), which
a page cannot send to another site without a preflight request. Knows nothing of the paths.
"""

from __future__ import annotations

import ipaddress
from http import HTTPStatus
from typing import Final
from urllib.parse import urlsplit

from aiohttp import hdrs, web
from aiohttp.typedefs import Handler, Middleware

from echoless.broker.admin.refusal import RefusalError
from echoless.broker.config.advertised import ClientAddress
from echoless.broker.config.loading import Config
from echoless.broker.config.values import Address

SAFE_HEADERS: Final = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "Cross-Origin-Resource-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
}
_READING: Final = frozenset({hdrs.METH_GET, hdrs.METH_HEAD})
_OWN_SITE: Final = frozenset({"same-origin", "none"})
"""The values of `Sec-Fetch-Site` for our own pages and for addresses typed by a person."""


def own_names(config: Config) -> frozenset[str]:
    """The names accepted in `Host` for this broker's admin port; addresses need none."""
    addresses: list[ClientAddress | None] = [*config.listen, *config.advertise]
    addresses += [config.native_listen, config.native_advertise, config.admin_listen]
    addresses += [one.address for _, one in config.advertise_networks]
    hosts = {address.host for address in addresses if isinstance(address, Address)}
    return frozenset(map(_canonical, {"localhost", *hosts, *config.admin_hosts}))


def guard(config: Config) -> Middleware:
    """The middleware that refuses requests that a foreign page may have sent."""
    names = own_names(config)

    @web.middleware
    async def check(request: web.Request, handler: Handler) -> web.StreamResponse:
        _check_host(request, names)
        _check_origin(request)
        return await handler(request)

    return check


async def add_safe_headers(_: web.Request, response: web.StreamResponse) -> None:
    """Adds the headers that a page has not set by itself; a handler for `on_response_prepare`."""
    for name, value in SAFE_HEADERS.items():
        response.headers.setdefault(name, value)


def _check_host(request: web.Request, names: frozenset[str]) -> None:
    hosts = request.headers.getall(hdrs.HOST, [])
    if len(hosts) != 1 and (hosts or request.version >= (1, 1)):
        raise RefusalError(
            HTTPStatus.BAD_REQUEST, f"Host: takes one name or address, not {len(hosts)}"
        )
    for host in {*hosts, request.host} if hosts else ():  # they differ if the target is a whole URL
        name = _canonical(_without_port(host))
        if name not in names and not _is_address(name):
            raise RefusalError(
                HTTPStatus.MISDIRECTED_REQUEST,
                f"Host: {host!r} is not a name of this broker; ask it by its address, or add "
                f"the name to its configuration: admin_hosts={name}",
            )


def _check_origin(request: web.Request) -> None:
    origin = request.headers.get(hdrs.ORIGIN)
    if origin is not None and not _is_same(origin, request.headers.get(hdrs.HOST, "")):
        raise RefusalError(
            HTTPStatus.FORBIDDEN,
            f"Origin: {origin!r} is another site; pages of other sites cannot use this port",
        )
    site = request.headers.get("Sec-Fetch-Site", "none")
    if site not in _OWN_SITE and not _is_link(request):
        raise RefusalError(
            HTTPStatus.FORBIDDEN,
            f"Sec-Fetch-Site: {site!r}; pages of other sites cannot use this port",
        )


def _is_same(origin: str, host: str) -> bool:
    try:
        parts = urlsplit(origin)
    except ValueError:
        return False
    return parts.scheme in {"http", "https"} and parts.netloc.lower() == host.lower() != ""


def _is_link(request: web.Request) -> bool:
    """Whether a person follows a link; navigation by frames and scripts does not count."""
    return (
        request.method in _READING
        and request.headers.get("Sec-Fetch-Mode") == "navigate"
        and request.headers.get("Sec-Fetch-Dest") == "document"
    )


def _without_port(host: str) -> str:
    if host.startswith("[") and "]" in host:
        return host[1:].partition("]")[0]
    return host.rpartition(":")[0] if host.count(":") == 1 else host


def _canonical(name: str) -> str:
    return name.lower().removesuffix(".")


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
