"""The composition root: makes a broker and its ports. Decides nothing, and nothing below imports it.

`serve.py` calls it, and so does whatever runs a broker inside its own process: tests, the simulator,
benchmarks.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from broker.broker import Broker
from broker.config.listener_names import NATIVE
from broker.config.loading import Config
from broker.decisions.decisions import Decisions
from broker.environment import Environment
from broker.faults.faults import Faults
from broker.handlers.dispatch import KafkaDispatcher
from broker.metrics import Metrics
from broker.native.dispatch import NativeDispatcher
from broker.network.listeners import Listener
from broker.network.open_connections import OpenConnections
from broker.network.server import Server


def new_broker(config: Config, environment: Environment) -> Broker:
    """A broker that has not started. Its environment is the one that fault rules can break."""
    metrics = Metrics()
    decisions = Decisions(metrics)
    faults = Faults(config, environment, decisions)
    return Broker(config, faults.environment, metrics=metrics, decisions=decisions, faults=faults)


def new_servers(broker: Broker, listeners: Sequence[Listener]) -> list[Server]:
    """The servers of a broker that has started, one for each listener, which fault rules apply to."""
    kafka, native = KafkaDispatcher(broker.services), NativeDispatcher(broker.services)
    connection_ids, all_open = itertools.count(1), OpenConnections()
    servers = [
        Server(
            one.socket,
            native if one.name == NATIVE else kafka,
            listener_name=one.name,
            config=broker.config,
            budget=broker.request_memory,
            unsent=broker.unsent_answers,
            metrics=broker.metrics,
            connection_ids=connection_ids,
            all_open=all_open,
        )
        for one in listeners
    ]
    broker.faults.watch(servers, broker.services)
    return servers
