"""The native port of the kit, against answers that are written here."""

from __future__ import annotations

from typing import Any

from echoless.testkit.native import Native

_PAUSE = {"records": [], "high_watermark": -1, "next_offset": 0}


def test_values_wait_for_a_quota() -> None:
    """An answer that says nothing about the end (docs/native.md) is not the end of the topic."""
    answers = iter(
        [
            _PAUSE,
            {"records": [{"value": b"1"}], "high_watermark": 2, "next_offset": 1},
            {**_PAUSE, "next_offset": 1},
            {"records": [{"value": b"2"}], "high_watermark": 2, "next_offset": 2},
        ]
    )

    class Answered(Native):
        def call(self, message_type: str, **fields: Any) -> dict[str, Any]:
            return next(answers)

    assert Answered("nowhere:1").values("orders", 0) == [b"1", b"2"]
