"""Explanation of a stream's error in one line; Spark reports it with the stacks of two languages."""

from __future__ import annotations

import re
from typing import Final

_OURS: Final = re.compile(r"\becholess\.[\w.]+(?:Error|Exception): (.+)")
_TWIN: Final = re.compile(
    r"CONCURRENT_QUERY|CONCURRENT_STREAM_LOG_UPDATE|STATE_STORE_CHECKPOINT_LOCATION_NOT_EMPTY"
    r"|Multiple streaming (?:jobs detected|queries are concurrently)"
)
"""Errors of a running query's log, and of the metadata and the offsets of one that starts.

One that starts sees no offsets, prepares batch 0, and then finds what its twin has written since.
"""
_AWAY: Final = re.compile(
    r"TimeoutException: (Timed out waiting for a node assignment[^\n]*?)(?: SQLSTATE|$)",
    re.MULTILINE,
)
"""The words of Kafka's client in the connector when no broker of the source answers it."""
_PYTHONS: Final = re.compile(
    r"^(?!pyspark|py4j|java|org)[A-Za-z_][\w.]*(?:Error|Exception): .+", re.MULTILINE
)
_SPARKS: Final = re.compile(r"\[[A-Z_0-9.]+\] (.+)")


def explain(error: BaseException) -> str:
    """Returns our own message if there is one, or that the source is away, else Python's, Java's or Spark's."""
    text = str(error)
    if _TWIN.search(text):
        return "another run works with this checkpoint; nothing is stored twice, but one is enough"
    ours = _OURS.findall(text)
    if ours:
        return str(ours[-1]).strip()
    if away := _AWAY.search(text):
        return f"the source cannot be reached: {away[1]}"
    pythons = _PYTHONS.findall(text)
    if pythons:
        return str(pythons[0]).strip()
    causes = [line for line in text.splitlines() if line.startswith("Caused by: ")]
    if causes:
        return causes[-1].removeprefix("Caused by: ")
    found = _SPARKS.search(text)
    return found[1] if found else text.strip().splitlines()[0]
