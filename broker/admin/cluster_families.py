"""The metrics that say whether records can be acknowledged: of this broker, and of the cluster's partitions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric

from echoless.broker.admin.readiness import unready
from echoless.broker.admin.view import BrokerView, PartitionView

_PREFIX: Final = "echoless_"


def cluster_families(
    broker: BrokerView,
    families: list[Metric],
    held: Sequence[tuple[tuple[str, int], PartitionView]],
) -> Iterator[None]:
    """Adds them; `held` are the partitions with a replica here. A partition a step."""
    families.extend(_of_membership(broker))
    under_replicated = under_min_isr = offline = 0
    for _, partition in held:
        isr = len(partition.isr)
        under_replicated += partition.is_leader and isr < len(partition.replicas)
        under_min_isr += partition.is_leader and isr < partition.rules.min_insync_replicas
        offline += partition.leader_id < 0
        yield
    if _is_sure_controller(broker):
        offline = 0
        for led in _are_led(broker):
            offline += not led
            yield
    for name, help_text, value in (
        (
            "under_replicated_partitions",
            "Partitions led here of which a replica is not in sync",
            under_replicated,
        ),
        (
            "under_min_isr_partitions",
            "Partitions led here with fewer replicas in sync than min.insync.replicas: writes are refused",
            under_min_isr,
        ),
        (
            "offline_partitions",
            "Partitions without a live leader, of the cluster on its controller, elsewhere with a replica here",
            offline,
        ),
    ):
        families.append(GaugeMetricFamily(_PREFIX + name, help_text, value))


def _of_membership(broker: BrokerView) -> Iterator[Metric]:
    yield GaugeMetricFamily(
        f"{_PREFIX}ready",
        "1 where this broker could acknowledge a record now; /ready says why not",
        int(unready(broker) is None),
    )
    yield GaugeMetricFamily(
        f"{_PREFIX}unproved_session_seconds",
        "Seconds since the coordinator last proved this broker's session; 0 while it is proved",
        broker.membership.unproved_s,
    )
    yield GaugeMetricFamily(
        f"{_PREFIX}active_controller",
        "1 where this broker is the controller of its cluster, and certain of it",
        int(_is_sure_controller(broker)),
    )


def _is_sure_controller(broker: BrokerView) -> bool:
    membership = broker.membership
    return membership.controller_id == broker.config.broker_id and not membership.unproved_s


def _are_led(broker: BrokerView) -> Iterator[bool]:
    """For each partition of the cluster: whether its leader is registered."""
    brokers = broker.membership.brokers
    for topic in list(broker.registry.topics.values()):
        for index in topic.assignment:
            state = topic.states.get(index)
            yield state is not None and state.leader in brokers
