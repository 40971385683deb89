"""The origin of an appended batch, which determines how much of it is checked.

    origin        offsets, leader epoch    bytes                    older producer epoch   sequence
    client        assigned by the log      checked by the caller    rejected               decided on
    coordinator   assigned by the log      this broker's own        rejected               not checked
    replica       must continue the log    CRCs checked             accepted, counted      not checked
    recovery      must continue the log    CRCs checked, above      accepted               not checked
                                           the recovery point

What a leader appended has been decided, so followers and recovery accept it. A coordinator of groups or
transactions writes to a log that its own broker leads: commits of offsets within a transaction and
transaction markers carry a producer id and its epoch, but no sequence.

`Log.append` takes client and coordinator. The other two have functions of their own:
`Log.append_replicated`, and the scan and replay in `recovery.py`.
"""

from __future__ import annotations

import enum
from typing import Literal


class AppendOrigin(enum.Enum):
    """The source of a batch; the table above lists what is checked."""

    CLIENT = "client"
    COORDINATOR = "coordinator"
    REPLICA = "replica"
    RECOVERY = "recovery"


LeaderOrigin = Literal[AppendOrigin.CLIENT, AppendOrigin.COORDINATOR]
"""The origins of what a leader appends, which has no offset yet."""
