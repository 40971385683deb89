"""Offsets of Spark's Kafka source, from its checkpoint and its progress reports.

Both are JSON: `{"orders": {"0": 120, "1": 97}}`, half-open ends. The checkpoint's file `offsets/<batch>` is written
before the batch runs and never changed, so every attempt at the batch reads the same.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

Offsets = Mapping[str, Mapping[int, int]]
"""Offsets by topic and partition."""
_NO_FILE: Final = "PATH_NOT_FOUND"


def parse_offsets(value: Any) -> Offsets:
    """Parses the offsets of a progress report, where some versions of Spark nest JSON in JSON."""
    found = json.loads(value) if isinstance(value, str) else value
    return {
        topic: {int(partition): int(offset) for partition, offset in parts.items()}
        for topic, parts in (found or {}).items()
    }


def read_batch_offsets(session: SparkSession, checkpoint: str, batch_id: int) -> Offsets:
    """Reads the end of the batch in each partition of the source."""
    path = f"{checkpoint}/offsets/{batch_id}"
    row = session.read.text(path, wholetext=True).first()
    assert row is not None, "Spark writes it before the batch"
    return parse_batch_offsets(row[0])


def is_begun(session: SparkSession, checkpoint: str, batch_id: int) -> bool:
    """Whether a batch was begun: Spark writes its offsets first."""
    try:
        session.read.text(f"{checkpoint}/offsets/{batch_id}")
    except AnalysisException as error:
        if error.getCondition() == _NO_FILE:
            return False
        raise
    return True


def parse_batch_offsets(text: str) -> Offsets:
    """Parses a file `offsets/<batch>`: version, Spark's metadata, offsets of the one source."""
    _, _, *sources = text.splitlines()
    (source,) = sources
    return parse_offsets(source)


def advanced(reached: Offsets, before: Offsets) -> Offsets:
    """Returns the topics with records between two ends, all their partitions; a topic without records has none."""
    return {
        topic: parts
        for topic, parts in reached.items()
        if any(offset != before.get(topic, {}).get(index, 0) for index, offset in parts.items())
    }


def lag_of(progress: Any) -> dict[str, int]:
    """Returns the lag of each partition as of a progress report of Spark's."""
    (source,) = progress["sources"]
    latest, reached = parse_offsets(source["latestOffset"]), parse_offsets(source["endOffset"])
    return {
        f"{topic}-{partition}": max(0, offset - reached.get(topic, {}).get(partition, 0))
        for topic, parts in sorted(latest.items())
        for partition, offset in sorted(parts.items())
    }
