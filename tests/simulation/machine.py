"""A machine with a disk, on which a broker runs, is killed, stopped, paused and started again.

What survives: `kill` keeps every byte that was written, `lose_power` only what was synced, and of
the rest what chance leaves. A broker that ends by itself is started again, as a restart policy does.
"""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import Callable
from random import Random
from typing import Final

from echoless.broker.assembly import new_broker
from echoless.broker.broker import Broker
from echoless.broker.config.advertised import Advertised
from echoless.broker.config.loading import Address, Config
from echoless.broker.environment import Environment
from echoless.broker.tree.node_tree import CoordinationError, NodeTree
from echoless.storage.file_system import StorageError
from tests.fakes.memory_file_system import MemoryFileSystem, keep_all, keep_none
from tests.simulation.connection import Observer, Service, Services, SimulatedPeers
from tests.simulation.coordination import SimulatedNodeTree
from tests.simulation.coordinator import TreeServer
from tests.simulation.disk import WatchedFileSystem
from tests.simulation.network import Network
from tests.simulation.process import Process

EPOCH_MS: Final = 1_795_000_000_000
"""The time of a correct clock when the loop's shows 0."""
RESTART_S_MAX: Final = 2.0
HAND_OVER_S: Final = 3.0
STOP_S_MAX: Final = 30.0
KAFKA_PORT: Final = 9092
NATIVE_PORT: Final = 9093


class Machine:
    """One broker's machine."""

    def __init__(
        self,
        config: Config,
        node: str,
        *,
        network: Network,
        server: TreeServer,
        services: Services,
        rng: Random,
        observe: Observer,
    ) -> None:
        self.config = config
        self.broker_id = config.broker_id
        self.node = node
        self.disk = WatchedFileSystem(_empty_disk(config), node)
        self.skew_ms = 0
        """How far its clock is ahead of a right one."""
        self.process: Process | None = None
        """None: nothing runs."""
        self.service: Service | None = None
        """None: the broker is down or still starting."""
        self.session_tree: SimulatedNodeTree | None = None
        self.is_wanted = False
        """Whether a broker that ends is started again."""
        self.old_processes: list[Process] = []
        self.starts = 0
        self._survive: Callable[[int], int] = keep_none
        self.on_start_failure: Callable[[Machine, Exception], None] = lambda _machine, _error: None
        self._network = network
        self._server = server
        self._services = services
        self._rng = rng
        self._observe = observe

    @property
    def broker(self) -> Broker | None:
        return None if self.service is None else self.service.broker

    def now_ms(self) -> int:
        """The machine's clock."""
        return EPOCH_MS + self.skew_ms + round(self._network.loop.time() * 1000)

    # Starting and ending

    def start(self) -> None:
        """Starts the broker; it takes some time."""
        assert self.process is None
        self.is_wanted = True
        self.starts += 1
        self.process = Process(self._network.loop, f"{self.node}.{self.starts}")
        self.process.spawn(self._run(self.process))

    async def _run(self, process: Process) -> None:
        """Runs as `broker/serve.py` does, with a service in place of sockets."""
        broker = new_broker(self.config, self._environment(process))
        try:
            await broker.start(
                {
                    "PLAINTEXT": Advertised(Address(self.node, KAFKA_PORT)),
                    "NATIVE": Advertised(Address(self.node, NATIVE_PORT)),
                }
            )
        except (StorageError, CoordinationError) as error:
            self.on_start_failure(self, error)
            self._ended(process)
            return
        self.service = Service(self.node, process, broker, self._observe)
        self._services.open(self.service)
        await broker.session_lost.wait()
        await self._stop_broker(self.service)

    def stop(self) -> None:
        """SIGTERM; `process` is None once it has ended."""
        self.is_wanted = False
        if self.process is None:
            return
        if self.service is None:
            self.kill()
        else:
            self.process.spawn(self._stop_broker(self.service))

    async def _stop_broker(self, service: Service) -> None:
        if service.is_ending:
            return
        service.is_ending = True
        with contextlib.suppress(StorageError, CoordinationError, TimeoutError):
            async with asyncio.timeout(STOP_S_MAX):
                await service.broker.hand_over(HAND_OVER_S)
                service.broker.begin_stop()
                self._services.close(service)
                await service.broker.stop()
        self._ended(service.process)

    def _ended(self, process: Process) -> None:
        if self.process is process:
            self._bury()
            self.disk.release_locks()
            self._start_later()

    def _start_later(self) -> None:
        delay_s = self._rng.uniform(0.1, RESTART_S_MAX)
        self._network.loop.call_later(delay_s, self.start_again, context=self._network.context)

    def start_again(self) -> None:
        """Starts the broker unless it runs, or shall not."""
        if self.process is None and self.is_wanted:
            self.start()

    def kill(self) -> None:
        """SIGKILL: every byte that was written stays."""
        self._bury()
        self.disk.release_locks()

    def lose_power(self, survive: Callable[[int], int] = keep_none) -> None:
        """Unsynced bytes are gone, but for what `survive` leaves of them."""
        if self.session_tree is not None:
            self.session_tree.vanish()
        self._bury()
        self.disk = self.disk.after_power_loss(survive, self._rng.getrandbits(32))

    def lose_power_in_a_write(self, operations: int, survive: Callable[[int], int]) -> None:
        """The power fails instead of the so manieth change on disk from now on."""
        disk = self.disk.disk
        disk.lose_power_at = disk.operations + operations
        self._survive = survive

    def power_failed(self, process: Process) -> None:
        """The write in which the power had to fail has come."""
        if self.process is process:
            self.lose_power(self._survive)
            self._start_later()

    def replace_disk(self) -> None:
        """An empty disk in place of the old one."""
        self.disk = WatchedFileSystem(_empty_disk(self.config), self.node, self.disk.observe)

    def end_without_its_locks(self) -> None:
        """SIGKILL, where the locks on the disk are not its own."""
        self._bury()

    def forget_failed_syncs(self) -> None:
        """The files on a mended disk can be synced again; every byte is there."""
        self.disk = self.disk.after_power_loss(keep_all, 0)

    def _bury(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.old_processes.append(self.process)
            self.process = None
        if self.service is not None:
            self._services.close(self.service)
            self.service.hang_up()
            self.service = None

    # Its world

    def _environment(self, process: Process) -> Environment:
        rng = Random(self._rng.getrandbits(64))

        async def open_tree(config: Config) -> NodeTree:
            timeout_s = config.zookeeper_session_timeout_ms / 1000
            self.session_tree = await SimulatedNodeTree.open(
                self._server, self._network, self.node, process, timeout_s
            )
            return self.session_tree

        return Environment(
            file_system=self.disk,
            open_tree=open_tree,
            open_peers=lambda: SimulatedPeers(self._network, self._services, self.node, process),
            now_ms=self.now_ms,
            rng=rng,
            new_uuid=lambda: uuid.UUID(int=rng.getrandbits(128), version=4),
            monotonic_ms=lambda: round(self._network.loop.time() * 1000),
        )


def _empty_disk(config: Config) -> MemoryFileSystem:
    disk = MemoryFileSystem()
    disk.make_directory(config.data_dir)
    disk.sync_directory("/")  # created when the machine was set up
    return disk
