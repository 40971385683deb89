"""Checking a data directory: its own files, and every partition in it."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from echoless.cli.data_files import ReadOnlyFile, offset_files
from echoless.cli.errors import CommandError
from echoless.cli.verification.coordination import ComparedCoordinator, check_coordination
from echoless.cli.verification.findings import Findings
from echoless.cli.verification.partition import (
    PartitionCheck,
    PartitionSummary,
    PromisedOffsets,
)
from echoless.storage import paths
from echoless.storage.checkpoints import OffsetCheckpoint
from echoless.storage.clock_checkpoint import read_clock
from echoless.storage.file_system import FileSystem, StorageError
from echoless.storage.meta_properties import read_broker_id, read_cluster_id
from echoless.storage.os_file_system import OsFileSystem
from echoless.storage.producer_id_checkpoint import read_seen_counts
from echoless.storage.properties_file import decode_uuid, read_properties
from echoless.storage.strays import find_strays

_FILES = OsFileSystem()


class StoredPartition(NamedTuple):
    """One partition of the directory."""

    topic: str
    partition: int
    directory: str
    size_bytes: int


def find_partitions(data_dir: str) -> list[StoredPartition]:
    """Every partition, by topic and number. Raises `CommandError` where there is no data."""
    if not _FILES.exists(paths.join(data_dir, paths.META_PROPERTIES)):
        raise CommandError(f"{data_dir} is not a data directory: it has no {paths.META_PROPERTIES}")
    found = []
    for name in _FILES.list_directory(data_dir):
        key = paths.parse_partition_directory(name)
        directory = paths.join(data_dir, name)
        if key is not None and _FILES.is_directory(directory):
            found.append(StoredPartition(*key, directory, _size(directory)))
    return sorted(found)


def check_directory(
    data_dir: str,
    places: list[StoredPartition],
    coordinator: ComparedCoordinator,
    findings: Findings,
    advance: Callable[[int], None],
) -> list[PartitionSummary]:
    """Checks the directory's own files, then the coordinator's view of it, then each partition."""
    _check_small_files(data_dir, findings)
    directories = {(one.topic, one.partition): one.directory for one in places}
    check_coordination(data_dir, directories, coordinator, findings)
    recovery_points, high_watermarks, log_starts = (
        _offsets(data_dir, name, findings)
        for name in (
            paths.RECOVERY_POINT_CHECKPOINT,
            paths.HIGH_WATERMARK_CHECKPOINT,
            paths.LOG_START_CHECKPOINT,
        )
    )
    was_clean = _FILES.exists(paths.join(data_dir, paths.CLEAN_SHUTDOWN))
    _check_missing(data_dir, places, recovery_points, findings)
    summaries = []
    for place in places:
        key = place.topic, place.partition
        promises = PromisedOffsets(
            recovery_point=recovery_points.get(key, 0),
            high_watermark=high_watermarks.get(key, 0),
            log_start_offset=log_starts.get(key, 0),
            was_clean=was_clean,
            is_start_known=key in log_starts,
        )
        _check_metadata(place.directory, findings)
        check = PartitionCheck(place.directory, promises, findings, advance)
        summaries.append(check.run(coordinator.config))
    return summaries


def _check_small_files(data_dir: str, findings: Findings) -> None:
    """The directory's own files, each read as a broker reads it."""
    readers = {
        paths.META_PROPERTIES: _read_meta,
        paths.CLOCK_CHECKPOINT: read_clock,
        paths.PRODUCER_ID_CHECKPOINT: read_seen_counts,
    }
    for name, read in readers.items():
        path = paths.join(data_dir, name)
        if not _FILES.exists(path):
            continue
        try:
            read(_FILES, data_dir)
        except StorageError as error:
            findings.problem(path, error)


def _read_meta(fs: FileSystem, data_dir: str) -> None:
    read_broker_id(fs, data_dir)
    cluster_id = read_cluster_id(fs, data_dir)
    if cluster_id is not None:
        decode_uuid(paths.join(data_dir, paths.META_PROPERTIES), cluster_id)


def _check_missing(
    data_dir: str,
    places: list[StoredPartition],
    recovery_points: dict[tuple[str, int], int],
    findings: Findings,
) -> None:
    """Reports logs that were set aside, and flushed ones that are missing otherwise."""
    strays = find_strays(_FILES, data_dir, lambda error: findings.problem(error.path, error))
    for stray in strays:
        findings.note(paths.join(data_dir, stray.name), f"is set aside: {stray.reason}")
    names = _FILES.list_directory(data_dir)
    found = {(place.topic, place.partition) for place in places} | {stray.key for stray in strays}
    for key, offset in recovery_points.items():
        is_deleted = any(
            paths.is_deleted_directory(name) and paths.is_deleted_from(name, *key) for name in names
        )
        if offset and key not in found and not is_deleted:
            path = paths.partition_directory(data_dir, *key)
            findings.problem(path, f"is missing, though records below {offset} were on disk")


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
