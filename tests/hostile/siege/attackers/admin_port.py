"""Attacks of a web page, or of bytes that are not HTTP, on the admin port (items 5, 13, 14)."""

from __future__ import annotations

import asyncio
import random

from tests.hostile.siege.attacker import Line, Repeated, Target

_RULE = b'{"match": {"topic": "good"}, "action": {"type": "crash", "point": "after_append"}}'
_READS = ("/", "/health", "/ready", "/topics", "/decisions", "/metrics", "/producers/good/0")


def _http(method: str, path: str, headers: str = "", body: bytes = b"") -> bytes:
    head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\n{headers}"
    return head.encode() + f"Content-Length: {len(body)}\r\n\r\n".encode() + body


class ForeignOrigins(Repeated):
    name = "foreign-origins"
    does = "POSTs and DELETEs of fault rules as a browser sends them for a foreign page"

    async def attempt(self, target: Target, rng: random.Random) -> str:
        origin = rng.choice(("http://evil.example", "null", "http://localhost.evil.example"))
        kind = rng.choice(("text/plain", "application/x-www-form-urlencoded", "application/json"))
        headers = f"Origin: {origin}\r\nContent-Type: {kind}\r\n"
        method = rng.choice(("POST", "DELETE", "PUT", "OPTIONS"))
        return await _status(target, _http(method, "/faults", headers, _RULE))


class ReboundHosts(Repeated):
    name = "rebound-hosts"
    does = "requests whose Host is a name of somebody else (DNS rebinding)"

    async def attempt(self, target: Target, rng: random.Random) -> str:
        host = rng.choice(("evil.example", "evil.example:8080", "127.0.0.1.evil.example", "", "["))
        method, body = rng.choice((("POST", _RULE), ("GET", b"")))
        head = f"{method} /faults HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n"
        request = head.encode() + f"Content-Length: {len(body)}\r\n\r\n".encode() + body
        return await _status(target, request)


class LongPaths(Repeated):
    name = "long-paths"
    does = "paths and queries of 5,000 digits, nulls, percent signs and other numerals"

    async def attempt(self, target: Target, rng: random.Random) -> str:
        digits = rng.choice("19") * rng.choice((1, 20, 400, 5000))
        path = rng.choice(
            (
                f"/producers/good/{digits}",
                f"/producers/good/0?limit={digits}",
                f"/producers/good/0?producer_id=-{digits}",
                f"/decisions?n={digits}",
                f"/faults/{digits}",
                "/producers/good/%EF%BC%91",
                "/producers/%00/0",
                "/%ff%fe",
                "/" + "a/" * 4000,
            )
        )
        return await _status(target, _http(rng.choice(("GET", "HEAD", "DELETE")), path))


class SlowBodies(Repeated):
    name = "slow-bodies"
    does = "HTTP headers and bodies that come slowly, or never, or claim gigabytes"
    lanes = 8

    async def attempt(self, target: Target, rng: random.Random) -> str:
        line = await Line.open(target.admin)
        try:
            size = rng.choice((10, 100_000, 10**9))
            whole = (
                f"POST /faults HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                f"Content-Length: {size}\r\n\r\n".encode()
            )
            line.send_bytes(whole[: rng.randint(0, len(whole))])
            for _ in range(rng.randint(0, 10)):
                await asyncio.sleep(0.1)
                line.send_bytes(b"[" * rng.choice((1, 1000)))
            return "held"
        finally:
            line.abort()


class AdminGarbage(Repeated):
    name = "admin-garbage"
    does = "bytes that are no HTTP, deep JSON, and 64 KiB of headers"

    async def attempt(self, target: Target, rng: random.Random) -> str:
        json = "Content-Type: application/json\r\n"
        return await _status(
            target,
            rng.choice(
                (
                    rng.randbytes(200) + b"\r\n\r\n",
                    b"\x16\x03\x01\x02\x00" + bytes(100),
                    _http("POST", "/faults", json, b"[" * 100_000),
                    _http("POST", "/faults", json, b'{"action": ' + b"9" * 6000 + b"}"),
                    _http("GET", "/", "X: " + "y" * 65_536 + "\r\n"),
                    _http("GET", "/", "X: y\r\n" * 3000),
                    _http("GET", "/topics", "Transfer-Encoding: chunked\r\n", b"zz\r\n"),
                )
            ),
        )


class IdleAdmins(Repeated):
    name = "idle-admins"
    does = "up to 3,000 idle connections to the admin port, more than there are descriptors"
    pause_s = 0.2
    _held_max = 3000

    async def attempt(self, target: Target, rng: random.Random) -> str:
        lines: list[Line] = []
        try:
            for _ in range(rng.randint(1, self._held_max // 100)):
                found = await asyncio.gather(
                    *(Line.open(target.admin) for _ in range(100)), return_exceptions=True
                )
                lines += [line for line in found if isinstance(line, Line)]
            await asyncio.sleep(rng.random())
            self.tries["connections"] += len(lines)
            return "held"
        finally:
            for line in lines:
                line.abort()


class AdminReaders(Repeated):
    name = "admin-readers"
    does = (
        "every page of the admin port, over and over, and followers of decisions that do not read"
    )
    pause_s = 0.1

    async def attempt(self, target: Target, rng: random.Random) -> str:
        return await _status(target, _http("GET", rng.choice(_READS)))


async def _status(target: Target, request: bytes) -> str:
    """The status line's number for one request on a separate connection."""
    line = await Line.open(target.admin)
    try:
        line.send_bytes(request)
        answer = await line.read_some()
        words = answer.split(b" ", 2)
        return f"status {words[1].decode()}" if len(words) == 3 else "connection ended"
    finally:
        line.abort()
