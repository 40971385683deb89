"""A stop that clients, the disk or the name service would rather have last for ever."""

from __future__ import annotations

import asyncio
import datetime
import json
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from echoless.testkit.admin import Admin
from echoless.testkit.faults import Faults
from tests.crash.test_kill_under_load import PARTITIONS, TOPIC
from tests.hostile.target import connect, framed, until
from tests.hostile.test_signals import SETTINGS, STOP_S_MAX, Load, spawn
from tests.nemesis.names import NAME_SERVER, Names
from tests.nemesis.network import Network, reason_unavailable
from tests.stops.stop import heeds_signals
from tests.support.echoless import Echoless
from tests.support.queued_time import ProcessWatch
from tests.support.raw_client import RawConnection, message, nested

CONNECTIONS = 1000
MARKER = ".clean-shutdown"
ASKING = 50
FETCHES = 20
_HOST = "host"


def fetch_everything() -> object:
    """A fetch from the beginning, answered at once."""
    row = nested("fetch", 11, "FetchPartition")(
        partition=0, fetch_offset=0, partition_max_bytes=1_000_000
    )
    return message("fetch", 11, "Request")(
        max_wait=datetime.timedelta(0),
        min_bytes=0,
        topics=(nested("fetch", 11, "FetchTopic")(topic=TOPIC, partitions=(row,)),),
        forgotten_topics_data=(),
    )


@pytest.mark.slow
async def test_a_thousand_clients_of_which_some_never_read(
    start_echoless: Callable[..., Echoless],
) -> None:
    """Exit 0 in time, logs closed, and the one good client loses nothing."""
    broker = start_echoless(SETTINGS)
    load = Load(broker)
    load.wait_for(5000)
    idle = [connect(broker.kafka_address) for _ in range(CONNECTIONS - ASKING)]
    for one in idle[::2]:
        one.sendall(framed(bytes(50_000))[:1000])
    asking = [await RawConnection.open(broker.kafka_address) for _ in range(ASKING)]
    for connection in asking:
        for _ in range(FETCHES):
            connection.send_request(fetch_everything())
        await connection._writer.drain()
    load.wait_for(1)
    with ProcessWatch(broker.process.pid) as watch:
        assert broker.terminate() == 0
    assert watch.net_s < STOP_S_MAX
    assert (broker.data_dir / MARKER).exists()
    for one in idle:
        one.close()
    for connection in asking:
        await connection.close()
    broker.start()
    load.wait_for(1)
    await asyncio.to_thread(load.finish)


@pytest.mark.slow
def test_a_disk_that_takes_longer_than_a_stop_may(
    start_echoless: Callable[..., Echoless],
) -> None:
    """The flush is waited for, and the log says so; nothing else is. The exit is still clean."""
    broker = start_echoless(SETTINGS)
    load = Load(broker)
    load.wait_for(2000)
    with Faults(Admin(broker.admin_address)).rule({"type": "slow_fsync", "ms": 400}):
        assert broker.process.terminate() == 0
    assert "closing the logs takes long; the process ends when that is done" in broker.process.log()
    assert (broker.data_dir / MARKER).exists()
    broker.start()
    load.wait_for(1)
    load.finish()


@pytest.mark.slow
@pytest.mark.crash
def test_a_recovery_that_takes_longer_than_a_stop_may(
    start_echoless: Callable[..., Echoless], tmp_path: Path
) -> None:
    """A signal cuts it off in time, with 0; the next start recovers what is there."""
    broker = start_echoless(SETTINGS)
    load = Load(broker)
    load.wait_for(20_000)
    broker.kill()
    rules = tmp_path / "rules.json"
    rules.write_text(json.dumps({"action": {"type": "slow_fsync", "ms": 20_000}}))
    broker._arguments = ["--faults", str(rules)]
    process = spawn(broker)
    until(lambda: _is_locked(process.pid), "it has begun")
    end_in_time(process)
    broker._arguments = []
    broker.start()
    load.wait_for(PARTITIONS)
    load.finish()


def end_in_time(process: subprocess.Popen[bytes]) -> None:
    """Sends SIGTERM; the process ends with 0, and as soon as is promised."""
    with ProcessWatch(process.pid) as watch:
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    assert watch.net_s < STOP_S_MAX


def _is_locked(pid: int) -> bool:
    """Whether the process holds the lock of a data directory."""
    return f" {pid} " in Path("/proc/locks").read_text()


@pytest.mark.slow
@pytest.mark.cluster
def test_a_start_whose_names_are_not_resolved(tmp_path: Path) -> None:
    """An address to listen on, and a coordinator, that no name server knows: SIGTERM ends both."""
    if reason := reason_unavailable():
        pytest.skip(f"links cannot be cut here: {reason}")
    hosts = [NAME_SERVER, _HOST]
    with Network(hosts) as network, Names(network, hosts) as names:
        names.lose()
        for arguments in (["--listen", "nowhere:0"], ["--coordinator", "zookeeper://nowhere:2181"]):
            broker = Echoless(tmp_path, arguments=arguments)
            broker.process.prefix = network.prefix(_HOST)
            process = spawn(broker)
            until(lambda pid=process.pid: heeds_signals(pid), "it heeds signals")
            end_in_time(process)
