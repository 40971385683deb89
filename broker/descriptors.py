"""The shares of connections, admin connections and files in the process's file descriptors.

However many clients connect, half of the descriptors remain for the rest; however many topics are
created, clients still get theirs. If that is not enough, the process needs a higher limit (`ulimit -n`).
"""

from __future__ import annotations

import contextlib
import resource
from typing import Final, NamedTuple

SPARES: Final = 16
"""Held in reserve so that file operations under way can complete; see `storage/spare_descriptors.py`."""
_OTHERS: Final = 48
"""Reserved for all else: listeners, the coordinator, other brokers, files open for a moment."""
_ADMIN_MAX: Final = 64
_UNLIMITED: Final = 2**31 - 1


class Shares(NamedTuple):
    """The number of descriptors that each use may take."""

    limit: int
    connections: int
    admin_connections: int
    files: int
    """Log files that stay open. Existing partitions are opened even beyond this share."""


def descriptor_shares() -> Shares:
    """The shares of this process, after raising its limit as far as allowed."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
            soft = hard
    return shares_of(_UNLIMITED if soft == resource.RLIM_INFINITY else soft)


def shares_of(limit: int) -> Shares:
    """The shares of a process that may have `limit` descriptors."""
    connections = limit // 2
    admin = min(limit // 16, _ADMIN_MAX)
    files = limit - connections - admin - SPARES - _OTHERS
    return Shares(limit, max(connections, 1), max(admin, 1), max(files, limit // 16))
