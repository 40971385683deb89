"""Spark's classes for admission control, which PySpark 4.0 and 4.1 do not have."""

from __future__ import annotations

has_admission_control = True

try:
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadLimit,
        ReadMaxRows,
        ReadMinRows,
        SupportsTriggerAvailableNow,
    )
except ImportError:  # there, Spark calls `latestOffset()`, and asks for none of these
    has_admission_control = False

    class ReadLimit:  # type: ignore[no-redef]
        """Stands for Spark's."""

    class ReadAllAvailable(ReadLimit):  # type: ignore[no-redef]
        """Stands for Spark's."""

    class ReadMaxRows(ReadLimit):  # type: ignore[no-redef]
        """Stands for Spark's."""

        def __init__(self, max_rows: int) -> None:
            self.max_rows = max_rows

    class ReadMinRows(ReadLimit):  # type: ignore[no-redef]
        """Stands for Spark's."""

        def __init__(self, min_rows: int) -> None:
            self.min_rows = min_rows

    class SupportsTriggerAvailableNow:  # type: ignore[no-redef]
        """Stands for Spark's."""


__all__ = [
    "ReadAllAvailable",
    "ReadLimit",
    "ReadMaxRows",
    "ReadMinRows",
    "SupportsTriggerAvailableNow",
    "has_admission_control",
]
