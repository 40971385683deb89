"""Whether a transaction is open in a topic, by the brokers' own accounts."""

from __future__ import annotations

from collections.abc import Iterable

from echoless.testkit.admin import Admin, AdminError


def is_open(admins: Iterable[str], topic: str) -> bool:
    """Whether readers of committed records are held back in any partition, by any broker whose admin port answers."""
    return any(_holds_back(Admin(one), topic) for one in admins)


def _holds_back(admin: Admin, topic: str) -> bool:
    try:
        topics = admin.get("/topics")["topics"]
    except AdminError:
        return False
    return any(
        row["last_stable_offset"] < row["high_watermark"]
        for each in topics
        if each["name"] == topic
        for row in each["partitions"]
    )
