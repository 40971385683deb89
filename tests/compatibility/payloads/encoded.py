"""The result of an encoder of random frames, and functions that they share."""

from __future__ import annotations

import random
from typing import NamedTuple


class Encoded(NamedTuple):
    """Compressed bytes, and in words how they came about."""

    data: bytes
    about: str


def pieces(rng: random.Random, data: bytes, bytes_max: int) -> list[bytes]:
    """`data` in pieces of random sizes, none longer than `bytes_max`."""
    if rng.random() < 0.5:
        sizes = [bytes_max] * (len(data) // bytes_max + 1)
    else:
        sizes = [rng.randint(1, bytes_max) for _ in range(20)] + [bytes_max] * len(data)
    found, position = [], 0
    for size in sizes:
        if position >= len(data):
            break
        found.append(data[position : position + size])
        position += size
    return found


def junk(rng: random.Random) -> bytes:
    """A few bytes that mean nothing."""
    return rng.choice([b"\0", b"\0" * 9, b"\xff", rng.randbytes(rng.randint(1, 12))])
