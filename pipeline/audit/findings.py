"""Findings of an audit.

A problem breaks the promise "stored once, in order"; a note does not.
"""

from __future__ import annotations

import datetime
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
    LOST_MARKER = "lost_marker"
    OPEN_TRANSACTION = "open_transaction"
    FORGOTTEN = "forgotten"
    CRC = "crc"
    DAMAGE = "damage"
    TORN_TAIL = "torn_tail"
    RECORD_COUNT = "record_count"
    COMPACTED = "compacted"
    DELETED = "deleted"
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
    timestamp: int | None = None
    """Max timestamp of the first batch concerned, in ms: the producer's clock, or the broker's with LogAppendTime."""
    transactional_id: str | None = None
    """Transactional id of the producer, where it is known."""
    client_id: str | None = None
    """Client id of the producer, where a broker still remembers it."""


FINDING_DDL: Final = ddl_of(Finding)
_SECOND_MS: Final = 1000


def producer_text(finding: Finding) -> str:
    """Names the producer: `producer 7 epoch 0 (transactional id billing, client billing-1)`; empty without one."""
    if finding.producer_id is None:
        return ""
    named = {"transactional id": finding.transactional_id, "client": finding.client_id}
    names = ", ".join(f"{kind} {name}" for kind, name in named.items() if name)
    own = f"producer {finding.producer_id} epoch {finding.producer_epoch}"
    return f"{own} ({names})" if names else own


def time_text(time_ms: int) -> str:
    """Writes a timestamp as UTC, to the millisecond; of times beyond the calendar the number."""
    try:
        moment = datetime.datetime.fromtimestamp(time_ms / _SECOND_MS, tz=datetime.UTC)
    except (OverflowError, ValueError, OSError):
        return str(time_ms)  # a producer may send any timestamp
    return moment.isoformat(" ", "milliseconds").removesuffix("+00:00") + " UTC"
