"""The rows that `echoless dump` shows for a `.log` file.

A batch with a wrong CRC is shown as such, and reading continues after it; an impossible header ends
the file, since the start of the next batch is unknown.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from echoless.cli.data_files import ReadOnlyFile
from echoless.cli.output import time_text
from echoless.protocol.control_records import EndMarker, read_marker
from echoless.protocol.errors import DecodeError
from echoless.protocol.record_batch import BatchHeader, Codec, compute_crc
from echoless.protocol.records import Record, iterate_records
from echoless.storage.batch_reader import REPLAY_BYTES, read_headers
from echoless.storage.file_system import CorruptLogError

_VALUE_SHOWN_MAX: Final = 120


def batch_rows(path: str) -> Iterator[dict[str, Any]]:
    """Yields one row per batch. Raises `CorruptLogError` if the rest of the file cannot be read."""
    with ReadOnlyFile(path) as file:
        for position, header in read_headers(file, 0, REPLAY_BYTES):
            is_right = compute_crc(file.read(position, header.size)) == header.crc
            yield _batch_row(position, header, is_crc_right=is_right)


def _batch_row(position: int, header: BatchHeader, *, is_crc_right: bool) -> dict[str, Any]:
    return {
        "position": position,
        "base_offset": header.base_offset,
        "last_offset": header.last_offset,
        "records": header.record_count,
        "size": header.size,
        "codec": _codec_name(header.codec_id),
        "leader_epoch": header.partition_leader_epoch,
        "max_timestamp": header.max_timestamp,
        "producer_id": header.producer_id,
        "producer_epoch": header.producer_epoch,
        "base_sequence": header.base_sequence,
        "last_sequence": header.last_sequence,
        "flags": _flags(header),
        "crc": f"{header.crc:08x}",
        "crc_ok": is_crc_right,
    }


def record_rows(path: str) -> Iterator[dict[str, Any]]:
    """Yields one row per record. Raises `CorruptLogError` if a batch cannot be read."""
    with ReadOnlyFile(path) as file:
        for position, header in read_headers(file, 0, REPLAY_BYTES):
            batch = file.read(position, header.size)
            if compute_crc(batch) != header.crc:
                raise CorruptLogError(path, position, "the CRC does not match")
            try:
                marker = read_marker(batch) if header.is_control else None
                for record in iterate_records(batch):
                    yield _record_row(record) | _shown(marker)
            except DecodeError as error:
                raise CorruptLogError(path, position, str(error)) from error


def _record_row(record: Record) -> dict[str, Any]:
    return {
        "offset": record.offset,
        "timestamp": time_text(record.timestamp),
        "key": _text(record.key),
        "value": _text(record.value),
        "headers": ", ".join(f"{name}={_text(value)}" for name, value in record.headers),
    }


def _shown(marker: EndMarker | None) -> dict[str, Any]:
    """The key and the value of a transaction marker in words."""
    if marker is None:
        return {}
    return {"key": marker.type.name, "value": f"coordinator epoch {marker.coordinator_epoch}"}


def _text(data: bytes | None) -> str | None:
    """Bytes as text if they are text, else in Python's notation, cut at 120 characters."""
    if data is None:
        return None
    try:
        text = data.decode()
        text = text if text.isprintable() else repr(data)[2:-1]
    except UnicodeDecodeError:
        text = repr(data)[2:-1]
    return text if len(text) <= _VALUE_SHOWN_MAX else text[:_VALUE_SHOWN_MAX] + "…"


def _codec_name(codec_id: int) -> str:
    return Codec(codec_id).name.lower() if codec_id in list(Codec) else str(codec_id)


def _flags(header: BatchHeader) -> str:
    """The attribute bits other than the codec."""
    named = {
        "log-append-time": header.is_log_append_time,
        "transactional": header.is_transactional,
        "control": header.is_control,
    }
    return " ".join(name for name, is_set in named.items() if is_set)
