"""Settings that all runs of an ingest share: how files are read, and which columns become a record.

They are kept in the checkpoint, because a batch that is rerun must give the same rows in the same order.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Final

MIB: Final = 1024 * 1024
SPLIT_BYTES_DEFAULT: Final = 16 * MIB
BATCH_BYTES_DEFAULT: Final = 128 * MIB
FORMATS: Final = ("parquet", "csv", "json", "avro")
_VERSION: Final = 1
_OPTIONS_OF_LINES: Final = {
    *("encoding", "linesep", "wholetext", "ignorecorruptfiles", "ignoremissingfiles"),
    *("modifiedafter", "modifiedbefore", "pathglobfilter", "recursivefilelookup"),
}
"""Options, in small letters, of the reader that takes lines as they are."""


class IngestError(Exception):
    """Files cannot be read as planned; the message says what to do."""


@dataclass(slots=True, frozen=True, kw_only=True)
class IngestSettings:
    """Settings of an ingest. Columns are given by name; None: no column is used."""

    format: str
    topic: str
    key_column: str | None = None
    value_column: str | None = None
    """Column of the value; None: the whole row, as JSON."""
    partition_column: str | None = None
    timestamp_column: str | None = None
    """Column of timestamps, of their text, or of milliseconds."""
    schema: str | None = None
    """Columns and types as DDL: given, or taken from the first files."""
    reader_options: Mapping[str, str]
    in_order: bool = False
    """Whether a batch is one file, written by one task."""
    split_bytes: int = SPLIT_BYTES_DEFAULT
    """Bytes of a file that one task reads."""
    name: str | None = None
    """The sink's name in its ledger: another one knows nothing of what is stored. None: a checkpoint of an earlier version."""
    ledger: str | None = None
    """The ledger that was named; empty: in the checkpoint. None as above."""
    batch_bytes: int = BATCH_BYTES_DEFAULT

    def check_reader_options(self) -> None:
        """Raises `IngestError` for an option that would have no effect."""
        if self.format != "json":
            return
        for name in self.reader_options:
            if name.lower() not in _OPTIONS_OF_LINES:
                raise IngestError(
                    f"--reader-option {name}: has no effect on json, of which each line is stored as it is; "
                    "wholetext=true makes each file one value"
                )

    def with_schema(self, schema: str) -> IngestSettings:
        return replace(self, schema=schema)

    def to_json(self) -> bytes:
        return json.dumps({"version": _VERSION, **asdict(self)}, indent=1).encode()

    @classmethod
    def from_json(cls, data: bytes) -> IngestSettings:
        found: dict[str, Any] = json.loads(data)
        version = found.pop("version")
        if version != _VERSION:
            raise IngestError(f"the checkpoint is of version {version}, this reads {_VERSION}")
        return cls(**found)

    def check_same(self, given: IngestSettings) -> None:
        """Raises `IngestError` if a later run was given other settings."""
        for field in fields(self):
            old, new = getattr(self, field.name), getattr(given, field.name)
            is_free = field.name == "batch_bytes"  # planned batches stay as they are
            is_kept = field.name == "schema" and new is None
            is_kept |= field.name in ("name", "ledger") and old is None
            if old != new and not is_free and not is_kept:
                raise IngestError(
                    f"this checkpoint was begun with {field.name} {old!r}, not {new!r}: finish it with the "
                    "settings of its first run, or take a new checkpoint and name"
                )
