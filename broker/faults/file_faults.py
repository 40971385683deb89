"""Rules for files in action: fail, slow down, and crash the process at points of storage's work.

Every rule that matches acts, in their order. A file is matched by its directory (`orders-0`), an
append also by the batches in it. Writes come from the event loop, syncs from other threads as well,
so counting is under a lock.

Crash points, in terms of files: before_append, after_append: the append to a `.log` file, for
a producer or by replication; after_fsync: the sync of a `.log` file; in_roll: the new
segment's `.log` file is there and empty; in_snapshot: half of a new producer snapshot is in its
temporary file.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
import time
from collections.abc import Callable, Sequence
from fnmatch import fnmatch
from typing import Final

from echoless.broker.faults.hits import Hits
from echoless.broker.faults.match import Part
from echoless.broker.faults.request_actions import Crash
from echoless.broker.faults.rule import ActiveRule
from echoless.protocol.errors import DecodeError
from echoless.protocol.record_batch import Buffer, walk
from echoless.storage.file_system import FileSystem, StorageError

_LOG: Final = ".log"
_SNAPSHOT: Final = ".snapshot"
_FIRST_SEGMENT: Final = "0" * 20 + _LOG
_TEMPORARY: Final = ".tmp"


class FileFaults:
    """The rules for files of one broker, while there are some."""

    def __init__(
        self,
        rules: Sequence[ActiveRule],
        hits: Hits,
        crash: Crash,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._rules = rules
        self._hits = hits
        self._crash = crash
        self._sleep = sleep
        self._loop = asyncio.get_running_loop()
        self._lock = threading.Lock()

    # --- what the file system calls ---

    def before_append(self, path: str, buffers: Sequence[Buffer]) -> None:
        """Raises `StorageError`, as all here."""
        self._slow_or_fail("slow_write", "fail_write", path, buffers)
        self._crash_at("before_append", path, buffers)

    def after_append(self, path: str, buffers: Sequence[Buffer]) -> None:
        self._crash_at("after_append", path, buffers)

    def before_sync(self, path: str) -> None:
        self._slow_or_fail("slow_fsync", "fail_fsync", path)

    def after_sync(self, path: str) -> None:
        self._crash_at("after_fsync", path)

    def after_create(self, path: str) -> None:
        if not path.endswith(_FIRST_SEGMENT):
            self._crash_at("in_roll", path)

    def before_replace(self, fs: FileSystem, path: str, data: Buffer) -> None:
        """`path` is about to be replaced as a whole by `data`."""
        self._slow_or_fail("slow_write", "fail_write", path)
        self._slow_or_fail("slow_fsync", "fail_fsync", path)
        if path.endswith(_SNAPSHOT):
            for rule in self._acting("crash", path, (), "in_snapshot"):
                temporary = path + _TEMPORARY
                fs.remove(temporary)
                fs.open(temporary, create=True).append([memoryview(data)[: len(data) // 2]])
                self._crash(rule)

    # --- the actions ---

    def _slow_or_fail(
        self, slow: str, fail: str, path: str, buffers: Sequence[Buffer] = ()
    ) -> None:
        for rule in self._acting(slow, path, buffers):
            self._sleep(rule.action.draw_s(rule.turns.rng))
        for rule in self._acting(fail, path, buffers):
            why = os.strerror(rule.action.errno) if rule.action.errno else "the sync failed"
            raise StorageError(path, f"{why} (the fault rule {rule.name} says so)")

    def _crash_at(self, point: str, path: str, buffers: Sequence[Buffer] = ()) -> None:
        if path.endswith(_LOG):
            for rule in self._acting("crash", path, buffers, point):
                self._crash(rule)

    def _acting(
        self, action: str, path: str, buffers: Sequence[Buffer], point: str | None = None
    ) -> list[ActiveRule]:
        """The rules with this action that act on this file now, counted."""
        found = [
            rule
            for rule in self._rules
            if rule.action.type == action and rule.action.point == point
            if rule.action.path is None or _has_name(path, rule.action.path)
        ]
        return [rule for rule in found if self._takes(rule, path, buffers)]

    def _takes(self, rule: ActiveRule, path: str, buffers: Sequence[Buffer]) -> bool:
        parts = _parts(path, buffers)
        if rule.match.names_partitions:
            parts = [part for part in parts if rule.match.picks_part(part)]
            if not parts:
                return False
        with self._lock:
            if not rule.is_due or not rule.turns.take(self._loop.time()):
                return False
        with contextlib.suppress(RuntimeError):  # the loop has ended: there is no listener left
            self._loop.call_soon_threadsafe(self._hits.on_broker, rule, path, parts)
        return True


def _has_name(path: str, pattern: str) -> bool:
    return fnmatch(path, pattern) or fnmatch(path.rpartition("/")[2], pattern)


def _parts(path: str, buffers: Sequence[Buffer]) -> list[Part]:
    """The partition whose directory the file is in (or is), with the batches of the append."""
    above, _, name = path.rpartition("/")
    for directory in (name, above.rpartition("/")[2]):
        topic, _, index = directory.rpartition("-")
        if topic and index.isdecimal():
            break
    else:
        return []
    partition = int(index)
    batches = []
    if buffers and path.endswith(_LOG):
        with contextlib.suppress(DecodeError):
            batches = [header for _, header in walk(b"".join(buffers))]
    if not batches:
        return [Part(topic, partition)]
    return [
        Part(
            topic,
            partition,
            header.producer_id,
            header.producer_epoch,
            header.base_sequence,
            header.last_sequence,
            has_batch=True,
        )
        for header in batches
    ]
