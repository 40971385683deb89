"""The JSON of nodes: what other programs may write is read, what cannot be worked with is a `ValueError`."""

from __future__ import annotations

import pytest

from echoless.broker.tree.node_json import decode_node_json


def test_json_is_read() -> None:
    """Escapes of characters beyond the first 65,536, as Java writes them, too."""
    data = rb'{"name":"\uD83D\ude00","numbers":[1,-2.5e3],"none":null}'
    assert decode_node_json(data) == {"name": "\U0001f600", "numbers": [1, -2500.0], "none": None}


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xff",
        b"{",
        b"{} {}",
        b"[" * 100_000,
        b'{"a":' * 100_000,
        b"1e999",
        b"-Infinity",
        b"NaN",
        rb'{"\ud800":1}',
        rb'["\uDC00\uD800"]',
        b'"\xed\xa0\x80"',
    ],
)
def test_what_cannot_be_worked_with_is_refused(data: bytes) -> None:
    """Nothing else is raised, so that each decoder can name its node."""
    with pytest.raises(ValueError):  # noqa: PT011 - whatever is wrong
        decode_node_json(data)
