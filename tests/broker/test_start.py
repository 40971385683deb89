"""A start loads what it needs up to a producer's first acknowledged record, and nothing heavy besides."""

from __future__ import annotations

import re
from importlib.util import find_spec
from pathlib import Path

import pytest

from benchmarks.first_record import acknowledge_one
from tests.support.echoless import Echoless

LATER = {
    "aiohttp": "the first connection to the admin port",
    "argparse": "serve --help",
    "_bz2": "the first directory that is removed",
    "_hashlib": "the first log-in, bound producer id, group of the consumer protocol or long key to compact",
    "_lzma": "the first directory that is removed",
    "_ssl": "a TLS listener, the first connection to the admin port",
    "echoless.broker.admin.application": "the first connection to the admin port",
    "echoless.broker.admin.view": "the first connection to the admin port",
    "echoless.broker.cluster.member": "a cluster",
    "echoless.broker.controller": "a cluster",
    "echoless.broker.faults.rule": "the first fault rule",
    "echoless.broker.groups.shard": "consumer groups",
    "echoless.broker.handlers.fetch": "the first Fetch, as other handlers with their first requests",
    "echoless.broker.handlers.list_offsets": "the first ListOffsets",
    "echoless.broker.native.exchange": "the first message on the native port",
    "echoless.broker.records.fetch": "the first Fetch",
    "echoless.broker.replication": "a cluster",
    "echoless.broker.tree.zookeeper": "a cluster",
    "echoless.cli": "another command",
    "echoless.client": "another command",
    "echoless.coordinators": "consumer groups",
    "cramjam": "the first compressed batch",
    "difflib": "a misspelt option",
    "hypothesis": "nothing",
    "importlib.metadata": "nothing",
    "ipaddress": "ACLs, a host name to listen on",
    "kazoo": "a cluster",
    "kio": "the first request that is read by it",
    "msgpack": "the first snapshot, or housekeeping",
    "prometheus_client": "/metrics",
    "echoless.protocol.entities": "the first response that kio writes",
    "echoless.protocol.native": "the first message on the native port",
    "rich": "another command",
    "shutil": "the first directory that is removed",
    "echoless.storage.compaction.cleaning": "the first pass of the cleaner, or housekeeping",
    "echoless.storage.compaction.swap": "the first pass of the cleaner, or the first log that is found",
    "echoless.storage.pending_segment_removal": "the first segment that goes, or housekeeping",
    "echoless.storage.producers.snapshot_chunk": "a cluster",
    "echoless.storage.recovery": "the first log that is found, or housekeeping",
    "echoless.storage.replacement": "a cluster, or the first log that is found",
    "echoless.storage.time_lookup": "the first ListOffsets by time",
    "echoless.storage.truncation": "a cluster",
    "tomllib": "a configuration file",
    "typer": "another command",
}
"""Modules and packages, and what they are for."""
_IMPORTED = re.compile(r"^import time: +\d+ \| +\d+ \| +([\w.]+)$", re.MULTILINE)


@pytest.mark.slow
def test_nothing_heavy_is_loaded_before_the_first_acknowledged_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every module costs the start; a request's answer must not wait for kio's classes either."""
    monkeypatch.setenv("PYTHONPROFILEIMPORTTIME", "1")
    broker = Echoless(tmp_path)
    broker.start()
    try:
        acknowledge_one(broker.kafka_address)
    finally:
        broker.kill()
    assert all(find_spec(one) for one in LATER), "a name that does not exist proves nothing"
    loaded = set(_IMPORTED.findall(broker.process.log_path.read_text()))
    assert {"asyncio", "uvloop", "echoless.broker.handlers.produce"} <= loaded
    early = {one for one in LATER if any(f"{name}.".startswith(f"{one}.") for name in loaded)}
    assert {one: LATER[one] for one in sorted(early)} == {}
