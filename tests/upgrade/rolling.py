"""Restarts of one broker after the other under load, and what has to be stored afterwards."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from tests.support.cluster import Cluster
from tests.support.keyed_writer import KeyedWriter
from tests.support.stored_values import read_stored_values

ORDERS: Final = "orders"
"""The topic whose records are all kept."""


def roll(
    cluster: Cluster,
    broker_ids: Iterable[int],
    tree: Path,
    settings: Mapping[str, str] | None = None,
    *,
    is_emptied: bool = False,
) -> None:
    """Restarts brokers from another tree, one after the other; each stops in order, and comes back in sync.

    `is_emptied`: without their data, which 0.1.0 cannot read once a later release has written it.
    """
    for broker_id in broker_ids:
        assert cluster.stop(broker_id) == 0, cluster.said()
        if is_emptied:
            shutil.rmtree(cluster.brokers[broker_id].data_dir)
        cluster.brokers[broker_id].run_from(tree, settings)
        cluster.start_broker(broker_id)
        cluster.wait_until(cluster.is_in_sync, f"broker {broker_id} is in sync after its restart")
        assert cluster.live == list(cluster.brokers), cluster.said()


def check_log(cluster: Cluster, writer: KeyedWriter) -> None:
    """Each record is stored once, at the offset that its acknowledgement named."""
    assert not writer.failures
    leader = cluster.brokers[cluster.wait_for_leader(ORDERS, 0)].kafka_address
    (stored,) = read_stored_values(leader, ORDERS, 1)
    assert stored == [writer.acknowledged[offset][1] for offset in sorted(writer.acknowledged)]
    assert len(stored) == writer.sent
