"""The steps of a history: requests with names instead of producer ids, and waits.

Producer ids are labels such as `p3`, for the id that was issued in step 3; each side translates them, and names of topics, groups
and transactional ids, to its own. So a step can be played again without those before it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from tests.oracle.messages import Plain

IDS: Final = ("a", "b")
"""Transactional ids."""
TOPIC: Final = "t"
PARTITIONS: Final = 3
MISSING: Final = "missing"
GROUPS: Final = ("g", "h")
NOBODY: Final = "nobody"
"""A producer id that no one has."""
CLOSED: Final = "closed"
"""The answer of a broker that closes the connection instead."""
READ: Final = "read"
"""All that readers of both isolations and administrators see, of every partition and group."""
TIME_OUT: Final = "time out"
"""The wait until a transaction has been aborted because its time was over."""
READING: Final = frozenset(
    {
        READ,
        "fetch",
        "list_offsets",
        "offset_fetch",
        "describe_producers",
        "list_transactions",
        "find_coordinator",
    }
)
"""Requests that change nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One request, or one of the two steps without an API."""

    number: int
    client: str
    connection: int
    """The number of the client's connection, in the order in which they are opened."""
    api: str
    version: int = 0
    values: Mapping[str, Plain] = field(default_factory=dict)
    note: str = ""
    """`again` for the repetition of a client's last request, `late` for a delayed copy, `odd` for what no client sends."""

    def __str__(self) -> str:
        note = f" ({self.note})" if self.note else ""
        return f"{self.number}: {self.client} #{self.connection} {self.api} v{self.version}{note} {_short(self.values)}"


def _short(values: Plain) -> str:
    """The values without quotes and long names."""
    if isinstance(values, Mapping):
        inner = [
            f"{key.removeprefix('v3_and_below_')}={_short(one)}" for key, one in values.items()
        ]
        return "{" + " ".join(inner) + "}"
    return f"[{', '.join(map(_short, values))}]" if isinstance(values, list) else str(values)
