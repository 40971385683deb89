"""Spark's own event log of a run: twins that it started, and attempts that failed."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Final

SPECULATIVE: Final = "speculative twins started"
FAILED: Final = "attempts of tasks that failed"
TWIN_KILLED: Final = "attempts killed, for another one was done"


def settings(directory: Path) -> dict[str, str]:
    """Settings that make Spark write the log."""
    return {
        "spark.eventLog.enabled": "true",
        "spark.eventLog.compress": "false",
        "spark.eventLog.dir": directory.as_uri(),
    }


def count_attempts(directory: Path) -> Counter[str]:
    """Counts over the logs of all drivers. A killed one has lost the end of its log."""
    counts: Counter[str] = Counter({SPECULATIVE: 0, FAILED: 0, TWIN_KILLED: 0})
    for path in directory.rglob("*"):
        if not path.is_file():
            continue
        with path.open(errors="replace") as lines:
            for line in lines:
                if '"SparkListenerTask' in line:
                    _count(line, counts)
    return counts


def _count(line: str, counts: Counter[str]) -> None:
    try:
        event = json.loads(line)
    except ValueError:  # the last line of a killed driver
        return
    if event["Event"] == "SparkListenerTaskStart":
        counts[SPECULATIVE] += event["Task Info"]["Speculative"]
    elif event["Event"] == "SparkListenerTaskEnd":
        reason = event["Task End Reason"]["Reason"]
        counts[TWIN_KILLED] += reason == "TaskKilled"
        counts[FAILED] += reason not in ("Success", "TaskKilled")
