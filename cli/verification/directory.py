"""Checking a data directory: its own files, and every partition in it."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from broker.config import Config
from cli.data_files import ReadOnlyFile, offset_files
from cli.errors import CommandError
from cli.verification.findings import Findings
from cli.verification.partition import (
    PartitionCheck,
    PartitionSummary,
    Promises,
)
from storage import paths
from storage.checkpoints import OffsetCheckpoint
from storage.file_system import OsFileSystem, StorageError
from storage.properties_file import decode_uuid, read_properties

_FILES = OsFileSystem()


class Place(NamedTuple):
    """One partition of the directory."""

    topic: str
    partition: int
    directory: str
    size_bytes: int


def find_partitions(data_dir: str) -> list[Place]:
    """Every partition, by topic and number. Raises `CommandError` where there is no data."""
    if not _FILES.exists(paths.join(data_dir, paths.META_PROPERTIES)):
        raise CommandError(f"{data_dir} is no data directory: it has no {paths.META_PROPERTIES}")
    found = []
    for name in _FILES.list_directory(data_dir):
        key = paths.parse_partition_directory(name)
        directory = paths.join(data_dir, name)
        if key is not None and _FILES.is_directory(directory):
            found.append(Place(*key, directory, _size(directory)))
    return sorted(found)


def check_directory(
    data_dir: str,
    places: list[Place],
    config: Config,
    findings: Findings,
    advance: Callable[[int], None],
) -> list[PartitionSummary]:
    """Checks the directory's own files, then each partition."""
    _check_properties(
        paths.join(data_dir, paths.META_PROPERTIES), "=", ("broker.id", "cluster.id"), findings
    )
    recovery_points, high_watermarks, log_starts = (
        _offsets(data_dir, name, findings)
        for name in (
            paths.RECOVERY_POINT_CHECKPOINT,
            paths.HIGH_WATERMARK_CHECKPOINT,
            paths.LOG_START_CHECKPOINT,
        )
    )
    was_clean = _FILES.exists(paths.join(data_dir, paths.CLEAN_SHUTDOWN))
    summaries = []
    for place in places:
        key = place.topic, place.partition
        promises = Promises(
            recovery_point=recovery_points.get(key, 0),
            high_watermark=high_watermarks.get(key, 0),
            log_start_offset=log_starts.get(key, 0),
            was_clean=was_clean,
        )
        _check_metadata(place.directory, findings)
        check = PartitionCheck(place.directory, promises, findings, advance)
        summaries.append(check.run(config))
    return summaries


def _offsets(data_dir: str, name: str, findings: Findings) -> dict[tuple[str, int], int]:
    path = paths.join(data_dir, name)
    try:
        return OffsetCheckpoint(_FILES, path).read()
    except StorageError as error:
        findings.problem(path, error)
        return {}


def _check_metadata(directory: str, findings: Findings) -> None:
    path = paths.join(directory, paths.PARTITION_METADATA)
    properties = _check_properties(path, ": ", ("version", "topic_id"), findings)
    try:
        if "topic_id" in properties:
            decode_uuid(path, properties["topic_id"])
    except StorageError as error:
        findings.problem(path, error)


def _check_properties(
    path: str, separator: str, required: tuple[str, ...], findings: Findings
) -> dict[str, str]:
    try:
        return read_properties(_FILES, path, separator, required)
    except StorageError as error:
        findings.problem(path, error)
        return {}


def _size(directory: str) -> int:
    total = 0
    for _, path in offset_files(directory, paths.LOG):
        with ReadOnlyFile(path) as file:
            total += file.size
    return total
