"""The composition root: makes a broker and its ports, and wires their parts.

Decides nothing else. Nothing below imports it: `serve.py` calls it, and so does whatever runs a broker inside
its own process: tests, the simulator, benchmarks. Some parts depend on what a start has found, so
`Broker.start` calls back the builders here when it gets there.
"""

from __future__ import annotations

import itertools
import socket
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from broker.broker import Broker, Wiring
from broker.cluster.membership import Membership
from broker.cluster.metadata_rows import MetadataRows
from broker.cluster.stand_alone import StandAlone
from broker.cluster.topics import Topics
from broker.config.listener_names import ADMIN, NATIVE
from broker.config.loading import Config, LogFlush
from broker.decisions.decisions import Decisions
from broker.environment import Environment
from broker.faults.faults import Faults
from broker.handlers.dispatch import KafkaDispatcher
from broker.metrics import Metrics
from broker.native.dispatch import NativeDispatcher
from broker.network.listeners import Listener
from broker.network.open_connections import OpenConnections
from broker.network.server import Server
from broker.records.fetch import FetchParts
from broker.records.produce import ProduceParts
from broker.services import Services

if TYPE_CHECKING:
    from broker.admin.server import AdminServer
    from broker.authentication.tls import Tls
    from broker.network.tls_acceptor import TlsSettings


def new_broker(
    config: Config, environment: Environment, *, faults_class: type[Faults] = Faults
) -> Broker:
    """A broker that has not started. Its environment is the one that fault rules can break.

    Raises `ConfigError` if a listener speaks TLS and its files cannot be used.
    """
    tls = _new_tls(config)
    if tls is not None and config.security_protocol(NATIVE).is_encrypted:
        from broker.replication.peers import TcpPeers

        environment = replace(environment, open_peers=partial(TcpPeers, tls.client_context))
    metrics = Metrics()
    decisions = Decisions(metrics)
    faults = faults_class(config, environment, decisions)
    wiring = Wiring(_new_membership, _new_services)
    return Broker(
        config,
        faults.environment,
        metrics=metrics,
        decisions=decisions,
        faults=faults,
        wiring=wiring,
        tls=tls,
    )


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
            tls=_tls_settings(broker, one.name),
        )
        for one in listeners
    ]
    broker.faults.watch(servers, broker.services)
    return servers


def new_admin_server(listener: socket.socket, broker: Broker) -> AdminServer:
    """The admin port, which answers while the broker starts."""
    from broker.admin.server import AdminServer

    return AdminServer(listener, broker, _tls_settings(broker, ADMIN))


def _new_tls(config: Config) -> Tls | None:
    if not any(one.protocol.is_encrypted for one in config.listener_security_protocol_map):
        return None
    from broker.authentication.tls import Tls

    return Tls(config)


def _tls_settings(broker: Broker, listener: str) -> TlsSettings | None:
    if broker.tls is None or not broker.config.security_protocol(listener).is_encrypted:
        return None
    return broker.tls.settings()


def _new_membership(broker: Broker) -> Membership:
    if broker.config.zookeeper_hosts is None:
        alone = StandAlone(broker.tree, broker.registry, broker.config.broker_id)
        alone.on_session_lost(broker.lose_session)
        return alone
    from broker.cluster.joining import Joining
    from broker.cluster.member import Callbacks, ClusterMember

    return ClusterMember(
        broker.config,
        broker.environment,
        broker.tree,
        broker.registry,
        broker.replicas,
        joining=Joining(
            broker.config,
            broker.tree,
            broker.registry,
            broker.logs,
            tail_is_safe=broker.logs.tail_is_safe or broker.config.log_flush is LogFlush.COMMIT,
            is_new_directory=broker.is_new_directory,
        ),
        metrics=broker.metrics,
        steady_ms=broker.clock.steady_ms,
        callbacks=Callbacks(
            storage_failed=broker.fail_storage, cannot_rejoin=broker.session_lost.set
        ),
    )


def _new_services(broker: Broker) -> Services:
    return Services(
        config=broker.config,
        cluster_id=broker.cluster_id,
        cluster=broker.membership,
        registry=broker.registry,
        topics=Topics(
            broker.config,
            broker.registry,
            broker.replicas,
            broker.membership,
            broker.topic_deletion,
            can_open=broker.environment.file_system.can_open,
        ),
        partitions=broker.replicas,
        produce=ProduceParts(
            find=broker.replicas.find,
            fail_storage=broker.fail_storage,
            decisions=broker.decisions,
            metrics=broker.metrics,
            clock=broker.clock,
            thread=broker.record_thread,
        ),
        fetch=FetchParts(
            find=broker.replicas.find,
            fail_storage=broker.fail_storage,
            logs=broker.logs,
            metrics=broker.metrics,
            unsent_answers=broker.unsent_answers,
            stopping=broker.stopping,
        ),
        producer_ids=broker.producer_ids,
        metadata_rows=MetadataRows(broker.registry, broker.replicas, broker.membership),
        metrics=broker.metrics,
        clock=broker.clock,
        record_thread=broker.record_thread,
        tree=broker.tree,
        access=broker.access,
        fail_storage=broker.fail_storage,
        stopping=broker.stopping,
    )
