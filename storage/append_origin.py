"""The origin of what is appended to a log, which says how much of it is checked.

| origin | offsets, leader epoch | bytes | an older producer epoch | the sequence |
|---|---|---|---|---|
| client | assigned by the log | validated by the caller | rejected | decided on: append, duplicate or reject |
| coordinator | assigned by the log | this broker's own | rejected | not checked; there may be none |
| replica | must continue the log | CRCs checked | accepted and counted | not checked |
| recovery | must continue the log | CRCs checked above the recovery point | accepted | not checked |

What a leader appended has been decided, so followers and recovery accept it. A coordinator of groups or
transactions writes to a log that its own broker leads: commits of offsets within a transaction and
transaction markers carry a producer id and its epoch, but no sequence.

`Log.append` takes client and coordinator. The other two have the work in a function of their own:
`Log.append_replicated`, and the scan and replay in `recovery.py`.
"""

from __future__ import annotations

import enum


class AppendOrigin(enum.Enum):
    """Where a batch comes from; the module's table says what is checked."""

    CLIENT = "client"
    COORDINATOR = "coordinator"
    REPLICA = "replica"
    RECOVERY = "recovery"
