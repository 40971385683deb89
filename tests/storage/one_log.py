"""One log in memory, and the shorthand that its tests share."""

from __future__ import annotations

from dataclasses import dataclass, field

from echoless.protocol.dedup import Duplicate, Reject
from echoless.protocol.record_batch import read_header
from echoless.storage.append_origin import AppendOrigin, LeaderOrigin
from echoless.storage.appended import Appended
from echoless.storage.file_system import FileSystem
from echoless.storage.log import Log
from echoless.storage.log_config import LogConfig
from echoless.storage.opening import LogOpening
from tests.storage.log_workload import make_batch, new_file_system

DIRECTORY = "/data/orders-0"
NOW_MS = 1_000_000
SMALL = LogConfig(segment_bytes=600, index_interval_bytes=200, retention_ms=-1)


@dataclass(slots=True)
class OneLog:
    """A log that can be closed, or dropped as by kill -9, and opened again."""

    config: LogConfig = field(default_factory=lambda: SMALL)
    fs: FileSystem = field(default_factory=new_file_system)
    log: Log = field(init=False)

    def __post_init__(self) -> None:
        self.fs.make_directory(DIRECTORY)
        self.open()

    def open(
        self,
        *,
        recovery_point: int = 0,
        log_start_offset: int = 0,
        clean: bool = False,
        now_ms: int = NOW_MS,
    ) -> Log:
        self.log = Log.open(
            LogOpening(
                directory=DIRECTORY,
                config=self.config,
                fs=self.fs,
                now_ms=now_ms,
                recovery_point=recovery_point,
                log_start_offset=log_start_offset,
                clean=clean,
            )
        )
        return self.log

    def close_and_open(self) -> Log:
        self.log.close()
        return self.open(recovery_point=self.log.recovery_point, clean=True)

    def append(
        self,
        *,
        producer_id: int = -1,
        epoch: int = 0,
        sequence: int = 0,
        count: int = 1,
        size: int = 20,
        timestamp: int = NOW_MS,
        now_ms: int = NOW_MS,
        leader_epoch: int = 0,
        origin: LeaderOrigin = AppendOrigin.CLIENT,
    ) -> Appended | Duplicate | Reject:
        """Appends one batch; without a producer id it carries no sequence."""
        batch = make_batch(
            producer_id=producer_id,
            epoch=epoch if producer_id >= 0 else -1,
            sequence=sequence if producer_id >= 0 else -1,
            count=count,
            size=size,
            timestamp=timestamp,
        )
        return self.log.append(batch, read_header(batch), leader_epoch, now_ms, origin=origin)

    def fill(self, count: int, *, producer_id: int = 1, first_sequence: int = 0) -> None:
        """Appends `count` batches of one record by one producer."""
        for sequence in range(first_sequence, first_sequence + count):
            answer = self.append(producer_id=producer_id, sequence=sequence)
            assert isinstance(answer, Appended), answer

    def files(self, suffix: str) -> list[str]:
        return [name for name in self.fs.list_directory(DIRECTORY) if name.endswith(suffix)]

    def damage(self, name: str, position: int) -> None:
        """Flips a bit of a file unnoticed."""
        path = f"{DIRECTORY}/{name}"
        data = bytearray(self.fs.read_bytes(path))
        data[position] ^= 1
        self.fs.write_atomic(path, bytes(data))

    def cut(self, name: str, size: int) -> None:
        path = f"{DIRECTORY}/{name}"
        self.fs.write_atomic(path, self.fs.read_bytes(path)[:size])
