"""The JSON in nodes of the tree, which other programs write too.

Pure. Called by the decoders of nodes, whose own errors name the node.
"""

from __future__ import annotations

import json
from math import isfinite
from typing import Any, Final


def decode_node_json(data: bytes) -> Any:
    """Raises `ValueError` for data that is not JSON, or that cannot be worked with.

    That is JSON which is nested too deeply, numbers that are not finite, and text that is not Unicode.
    """
    try:
        text = data.decode()
        content = _DECODER.decode(text)
        if _SURROGATE in text.lower():
            json.dumps(content, ensure_ascii=False).encode()
    except RecursionError as error:
        raise ValueError("the JSON is nested too deeply") from error
    return content


def _finite(text: str) -> float:
    number = float(text)
    if not isfinite(number):
        raise ValueError(f"{text} is not a finite number")
    return number


_DECODER: Final = json.JSONDecoder(parse_float=_finite, parse_constant=_finite)
_SURROGATE: Final = r"\ud"
"""Begins the escape of half a character; two of them may be a whole one."""
