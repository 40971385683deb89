"""Requests whose fields say what their schema does not allow (item 1 of the issue)."""

from __future__ import annotations

import random

from tests.hostile.siege.attacker import Line, OnOneLine, Repeated, Target
from tests.hostile.target import framed, header
from tests.protocol.test_request_walk import APIS, BOTH_ENCODINGS, CLAIMS, SERVED, encoded

_FETCH = 1
_DESTRUCTIVE = frozenset({"create_topics"})
"""Random bytes must not reach 10,000 partitions by luck: `topics.py` does that on purpose."""


class NullFetches(OnOneLine):
    name = "null-fetches"
    does = "Fetch 13 to 17 with topic ids of zeros, and sessions, epochs and offsets of -1"

    async def ask(self, line: Line, rng: random.Random) -> str:
        version = rng.randint(13, 17)
        body = bytearray(encoded("fetch", version, rng.randint(1, 3)))
        topic_id = body.find(b"\0" * 15 + b"\1")
        body[topic_id : topic_id + 16] = bytes(16)
        line.send(_FETCH, version, bytes(body), flexible=True)
        await line.receive()
        return "answered"


class SchemaBreakers(Repeated):
    name = "schema-breakers"
    does = "every API and version with nulls, extreme counts and random bytes in its fields"
    lanes = 2

    async def attempt(self, target: Target, rng: random.Random) -> str:
        name, version = rng.choice(rng.choice((SERVED, BOTH_ENCODINGS)))
        api = APIS[name]
        body = bytearray(encoded(name, version, rng.randint(0, 3)))
        if name not in _DESTRUCTIVE:
            _break(body, rng)
        line = await Line.open(target.kafka)
        try:
            start = header(api.key, version, b"x", flexible=api.is_flexible(version))
            line.send_bytes(framed(start + bytes(body)))
            line.finish_sending()
            return "answered" if await line.read_some() else "connection ended"
        finally:
            line.abort()


def _break(body: bytearray, rng: random.Random) -> None:
    """Writes nulls (-1, or a compact 0), claims or noise over up to three places."""
    for _ in range(rng.randint(1, 3)):
        if not body:
            return
        position = rng.randrange(len(body))
        piece = rng.choice((b"\0", b"\xff\xff", b"\xff" * 4, *CLAIMS.values(), rng.randbytes(4)))
        body[position : position + len(piece)] = piece[: len(body) - position]
