"""Findings of an audit.

A problem breaks the promise "stored once, in order"; a note does not.
"""

from __future__ import annotations

import enum
from typing import Final, NamedTuple

from echoless.pipeline.audit.arrow_rows import ddl_of


class Severity(enum.StrEnum):
    """Severity of a finding: a problem decides the verdict, a note does not."""

    PROBLEM = "problem"
    NOTE = "note"


class FindingKind(enum.StrEnum):
    """Kind of a finding; `docs/audit.md` says what each one proves."""

    GAP = "gap"
    REPEAT = "repeat"
    REORDERING = "reordering"
    EPOCH_REGRESSION = "epoch_regression"
    FORGOTTEN = "forgotten"
    CRC = "crc"
    DAMAGE = "damage"
    TORN_TAIL = "torn_tail"
    RECORD_COUNT = "record_count"
    OFFSET_GAP = "offset_gap"
    OFFSET_REPEAT = "offset_repeat"
    LEADER_EPOCH_REGRESSION = "leader_epoch_regression"
    DIVERGENCE = "divergence"


class Finding(NamedTuple):
    """One finding; fields that do not apply to its kind are null."""

    severity: str
    kind: str
    replica: str
    topic: str
    partition: int
    text: str
    producer_id: int | None = None
    producer_epoch: int | None = None
    base_sequence: int | None = None
    """First of the sequences that are missing, stored again, or late."""
    last_sequence: int | None = None
    records: int | None = None
    """Number of records concerned."""
    after_offset: int | None = None
    """Last offset of the same producer before a gap; -1 if there is none."""
    base_offset: int | None = None
    """First of the offsets concerned; of damage, the first that it hides."""
    last_offset: int | None = None
    file: str | None = None
    position: int | None = None


FINDING_DDL: Final = ddl_of(Finding)
