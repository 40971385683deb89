"""The reasons for which a connection processes nothing now.

| reason         | begins                                         | ends                                     |
|----------------|------------------------------------------------|------------------------------------------|
| `NO_TRANSPORT` | before it is made; when it is closed or lost   | when it is made                          |
| `DRAINING`     | the broker stops (`drain`)                     | never: what comes is read and discarded  |
| `RESTING`      | its turn of the event loop is over             | in a later turn (`loop_turn.py`)         |
| `MUTED`        | it waits at the entrance, or for its log-in    | `unmute`                                 |
| `PAUSED`       | its client has used more than a quota allows   | after the time of the pause              |
| `RESERVING`    | a large frame finds no memory                  | when there is some (`memory_budget.py`)  |
| `UNREAD`       | its client does not read its answers           | when the client has read most of them    |

Nearly always there is none. Two more depend on counters that change with each request, and are asked for when they
matter (`ReadConnection._may_read`): as many answers outstanding as a connection may have, and too many small
requests that wait.
"""

from __future__ import annotations

import enum


class Hold(enum.Enum):
    """Why a connection processes nothing now."""

    NO_TRANSPORT = enum.auto()
    DRAINING = enum.auto()
    RESTING = enum.auto()
    MUTED = enum.auto()
    PAUSED = enum.auto()
    RESERVING = enum.auto()
    UNREAD = enum.auto()

    __hash__ = object.__hash__  # a tenth of that of `Enum`, which hashes the name
