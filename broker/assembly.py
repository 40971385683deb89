"""The composition root: makes a broker and its ports, and wires their parts.

Decides nothing else. Nothing below imports it: `serve.py` calls it, and so does whatever runs a broker inside
its own process: tests, the simulator, benchmarks. Some parts depend on what a start has found, so
`Broker.start` calls back the builders here when it gets there.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING

from echoless.broker.broker import Broker, Wiring
from echoless.broker.cluster.addresses import other_leader
from echoless.broker.cluster.membership import ClusterMembership
from echoless.broker.cluster.metadata_rows import MetadataRows
from echoless.broker.cluster.stand_alone import StandAlone
from echoless.broker.cluster.topics import Topics
from echoless.broker.config.internal_topics import CONSUMER_OFFSETS, TRANSACTION_STATE
from echoless.broker.config.listener_names import ADMIN, NATIVE
from echoless.broker.config.loading import Config, LogFlush
from echoless.broker.config.security import SecurityProtocol
from echoless.broker.decisions.decisions import Decisions
from echoless.broker.environment import Environment
from echoless.broker.faults.faults import FaultInjection
from echoless.broker.groups.cluster_topics import ClusterTopics
from echoless.broker.groups.service import GroupService
from echoless.broker.handlers.dispatch import KafkaDispatcher
from echoless.broker.metrics import Metrics
from echoless.broker.native.dispatch import NativeDispatcher
from echoless.broker.network.connection import Connection
from echoless.broker.network.listeners import Listener
from echoless.broker.network.reading import Dispatch
from echoless.broker.network.server import Server
from echoless.broker.network.turns import in_thread
from echoless.broker.quotas.connection_rates import ConnectionRates
from echoless.broker.records.deadlines import Deadlines
from echoless.broker.records.fetch_parts import FetchParts
from echoless.broker.records.fetch_sessions import FetchSessions
from echoless.broker.records.in_flight import ProduceParts
from echoless.broker.records.markers import MarkerWriter
from echoless.broker.services import Services
from echoless.broker.state_topics.append_parts import AppendParts
from echoless.broker.state_topics.topic import StateTopic
from echoless.broker.transactions.service import TransactionService
from echoless.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from echoless.broker.admin.server import AdminServer
    from echoless.broker.authentication.admin_tokens import Tokens
    from echoless.broker.authentication.session import Logins
    from echoless.broker.authentication.tls import BrokerTls
    from echoless.broker.network.tls_acceptor import TlsSettings
    from echoless.broker.replication.peers import Peers
    from echoless.broker.transactions.coordinator_door import CoordinatorDoor
    from echoless.broker.transactions.hanging import HangingTransactions
    from echoless.broker.transactions.marker_sender import MarkerSender
    from echoless.protocol.native.admin_read import AdminRead
    from echoless.protocol.native.transactions import (
        MarkerCodes,
        TransactionAnswered,
        TransactionAsk,
        TransactionMarker,
    )


def new_broker(
    config: Config, environment: Environment, *, faults_class: type[FaultInjection] = FaultInjection
) -> Broker:
    """A broker that has not started. Its environment is the one that fault rules can break.

    Its configuration is a copy, which may change while it runs. Raises `ConfigError` if the files of TLS, or of the
    admin port's tokens, cannot be used.
    """
    config = replace(config)
    tls = _new_tls(config)
    if config.security_protocol(NATIVE) is not SecurityProtocol.PLAINTEXT:
        environment = environment._replace(open_peers=partial(_open_peers, config, tls))
    metrics = Metrics()
    decisions = Decisions(metrics)
    faults = faults_class(config, environment, decisions)
    wiring = Wiring(_new_membership, _new_groups, _new_transactions, _new_services, _new_hanging)
    return Broker(
        config,
        faults.environment,
        metrics=metrics,
        decisions=decisions,
        faults=faults,
        wiring=wiring,
        tls=tls,
        logins=_new_logins(config, metrics),
        admin_tokens=_new_admin_tokens(config),
    )


def new_servers(broker: Broker, listeners: Sequence[Listener]) -> list[Server]:
    """The servers of a broker that has started, one for each listener, which fault rules apply to."""
    kafka, native = KafkaDispatcher(broker.services), NativeDispatcher(broker.services)
    rates = ConnectionRates(broker.config, broker.quotas)
    broker.settings.listen(rates.settings_changed)
    servers = [
        Server(
            one.socket,
            native if one.name == NATIVE else _guarded(kafka, broker.config, one.name),
            listener_name=one.name,
            config=broker.config,
            budget=broker.request_memory,
            unsent=broker.unsent_answers,
            metrics=broker.metrics,
            connection_ids=broker.connection_ids,
            all_open=broker.open_connections,
            tls=_tls_settings(broker, one.name),
            require_login=_required_login(broker, one.name),
            rates=rates,
        )
        for one in listeners
    ]
    for server in servers:
        broker.settings.listen(server.settings_changed)
    broker.faults.watch(servers, broker.services)
    return servers


def new_admin_server(listener: socket.socket, broker: Broker) -> AdminServer:
    """The admin port, which answers while the broker starts."""
    from echoless.broker.admin.server import AdminServer

    return AdminServer(listener, broker, _tls_settings(broker, ADMIN))


def _new_tls(config: Config) -> BrokerTls | None:
    if not config.speaks_tls:
        return None
    from echoless.broker.authentication.tls import BrokerTls

    return BrokerTls(config)


def _new_logins(config: Config, metrics: Metrics) -> Logins | None:
    if not any(one.protocol.is_sasl for one in config.listener_security_protocol_map):
        return None
    from echoless.broker.authentication.session import Logins

    return Logins(config, metrics)


def _new_admin_tokens(config: Config) -> Tokens | None:
    if config.admin_token_file is None:
        return None
    from echoless.broker.authentication.admin_tokens import Tokens

    return Tokens(config.admin_token_file)


def _required_login(broker: Broker, listener: str) -> Callable[[Connection], None] | None:
    if broker.logins is None or not broker.config.security_protocol(listener).is_sasl:
        return None
    config = broker.config.of_listener(listener)
    logins = broker.logins if config is broker.config else broker.logins.of_listener(config)
    return logins.require


def _guarded(dispatch: KafkaDispatcher, config: Config, listener: str) -> Dispatch:
    """The dispatcher itself, or what stands before it on a listener with SASL."""
    if not config.security_protocol(listener).is_sasl:
        return dispatch
    from echoless.broker.handlers.sasl_gate import SaslGate

    return SaslGate(dispatch)


def _open_peers(config: Config, tls: BrokerTls | None) -> Peers:
    """Connections to the native ports of other brokers, which speak what this one's does."""
    from echoless.broker.replication.peer_login import PeerLogin
    from echoless.broker.replication.peers import TcpPeers

    protocol = config.security_protocol(NATIVE)
    return TcpPeers(
        None if tls is None or not protocol.is_encrypted else tls.client_context,
        PeerLogin.of(config) if protocol.is_sasl else None,
    )


def _tls_settings(broker: Broker, listener: str) -> TlsSettings | None:
    protocol = broker.config.security_protocol(listener)
    if broker.tls is None or not protocol.is_encrypted:
        return None
    return broker.tls.settings(listener, is_sasl=protocol.is_sasl)


def _new_membership(broker: Broker) -> ClusterMembership:
    if broker.config.zookeeper_hosts is None:
        alone = StandAlone(broker.tree, broker.registry, broker.config.broker_id)
        alone.on_session_lost(broker.lose_session)
        return alone
    from echoless.broker.cluster.joining import Joining
    from echoless.broker.cluster.member import Callbacks, ClusterMember

    member = ClusterMember(
        broker.config,
        broker.environment,
        broker.tree,
        broker.registry,
        broker.replicas,
        features=broker.features,
        joining=Joining(
            broker.config,
            broker.tree,
            broker.registry,
            broker.logs,
            broker.seen_tree,
            tail_is_safe=broker.logs.tail_is_safe or broker.config.log_flush is LogFlush.COMMIT,
            is_new_directory=broker.is_new_directory,
        ),
        seen=broker.seen_tree,
        is_new_directory=broker.is_new_directory,
        metrics=broker.metrics,
        steady_ms=broker.clock.steady_ms,
        callbacks=Callbacks(
            storage_failed=broker.fail_storage, cannot_rejoin=broker.session_lost.set
        ),
    )
    broker.settings.listen(member.settings_changed)
    return member


def _new_groups(broker: Broker) -> GroupService:
    if (
        broker.config.zookeeper_hosts is not None
    ):  # a leadership may begin, and a follower's log be cut or replaced, while requests are served
        for module in ("broker.groups.shard", "storage.replacement", "storage.truncation"):
            import_module(f"echoless.{module}")
    return GroupService(
        broker.config,
        StateTopic(
            CONSUMER_OFFSETS,
            broker.registry,
            broker.membership,
            partial(_create_internal_topic, broker),
        ),
        AppendParts(
            now_ms=broker.clock.steady_ms,
            wall_ms=broker.clock.wall_ms,
            fail_storage=broker.fail_storage,
            metrics=broker.metrics,
            timeout_s=broker.config.offsets_commit_timeout_ms / 1000,
        ),
        topics=ClusterTopics(broker.registry.topics),
        new_uuid=broker.environment.new_uuid,
        expiry_ms=broker.clock.deletion_ms,
    )


def _new_transactions(broker: Broker) -> TransactionService:
    if broker.config.zookeeper_hosts is not None:  # as for groups
        for module in ("shard", "marker_sender"):
            import_module(f"echoless.broker.transactions.{module}")
    return TransactionService(
        broker.config,
        StateTopic(
            TRANSACTION_STATE,
            broker.registry,
            broker.membership,
            partial(_create_internal_topic, broker),
        ),
        AppendParts(
            now_ms=broker.clock.steady_ms,
            wall_ms=broker.clock.wall_ms,
            fail_storage=broker.fail_storage,
            metrics=broker.metrics,
            timeout_s=broker.config.transaction_commit_timeout_ms / 1000,
        ),
        newest_connection=partial(next, broker.connection_ids),
        next_producer_id=partial(_next_transactional_producer_id, broker),
        new_sender=partial(_new_marker_sender, broker),
        new_door=partial(_new_coordinator_door, broker),
        version=lambda: broker.features.transaction_version,
        note=broker.decisions.record_transaction,
    )


async def _next_transactional_producer_id(broker: Broker) -> int:
    producer_id = await broker.producer_ids.wait_for_producer_id()
    binding = broker.binding
    return producer_id if binding is None else binding.bound_to_transactions(producer_id)


def _new_marker_sender(broker: Broker) -> MarkerSender:
    from echoless.broker.transactions.marker_door import BrokerMarkerDoor
    from echoless.broker.transactions.marker_sender import MarkerSender
    from echoless.broker.transactions.partition_leaders import PartitionLeaders

    write_here = partial(_write_markers, broker)
    return MarkerSender(
        PartitionLeaders(broker.tree, broker.registry, broker.membership),
        BrokerMarkerDoor(broker.config.broker_id, broker.membership, write_here),
    )


def _new_coordinator_door(broker: Broker) -> CoordinatorDoor:
    from echoless.broker.transactions.coordinator_door import CoordinatorDoor

    return CoordinatorDoor(
        broker.config.broker_id,
        broker.membership,
        broker.transactions.coordinator_of,
        partial(_answer_leader, broker),
        partial(_look_for_leader, broker),
    )


async def _answer_leader(broker: Broker, ask: TransactionAsk) -> TransactionAnswered:
    """Answers a question of this broker itself; fault rules meet it as one of another broker."""
    own = broker.faults.own_messages
    if own is None:
        return await broker.transactions.answer(ask)
    return await own.ask(ask)


def _look_for_leader(broker: Broker, ask: TransactionAsk) -> TransactionAnswered | None:
    """Answers it at once, unless fault rules may meet it."""
    if broker.faults.own_messages is not None:
        return None
    return broker.transactions.look_for_leader(ask)


async def _new_hanging(broker: Broker) -> HangingTransactions:
    hanging = await in_thread(partial(import_module, "echoless.broker.transactions.hanging"))
    question = hanging.CoordinatorsQuestion(
        broker.config.broker_id, broker.membership, broker.transactions
    )
    found: HangingTransactions = hanging.HangingTransactions(
        broker.replicas.held,
        broker.clock,
        question,
        broker.services.markers,
        timeout_max_ms=broker.config.transaction_max_timeout_ms,
    )
    return found


async def _write_markers(broker: Broker, markers: Sequence[TransactionMarker]) -> MarkerCodes:
    if broker.starting is not None:
        message = "this broker is starting, and writes no markers yet"
        raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, message)
    own = broker.faults.own_messages
    if own is None:
        return await broker.services.markers.write(markers)
    return await own.write(markers)


async def _create_internal_topic(broker: Broker, name: str) -> None:
    await broker.services.topics.create_internal(name)


async def _read_admin(broker: Broker, message: AdminRead) -> tuple[int, str]:
    peer_reading = await in_thread(partial(import_module, "echoless.broker.admin.peer_reading"))
    answer: tuple[int, str] = await peer_reading.answer_peer(broker, message)
    return answer


def _new_services(broker: Broker) -> Services:
    produce = ProduceParts(
        find=broker.replicas.find,
        fail_storage=broker.fail_storage,
        decisions=broker.decisions,
        metrics=broker.metrics,
        clock=broker.clock,
        thread=broker.record_thread,
        deadlines=Deadlines(),
        quotas=broker.quotas,
        other_leader=partial(other_leader, broker.membership),
        binding=broker.binding,
        ask=broker.transactions.ask_coordinator,
    )
    return Services(
        config=broker.config,
        settings=broker.settings,
        cluster_id=broker.cluster_id,
        cluster=broker.membership,
        registry=broker.registry,
        topics=Topics(
            broker.config,
            broker.registry,
            broker.replicas,
            broker.membership,
            broker.topic_deletion,
            features=broker.features,
            can_open=broker.environment.file_system.can_open,
        ),
        partitions=broker.replicas,
        features=broker.features,
        produce=produce,
        markers=MarkerWriter(produce, broker.registry.topics, broker.groups.settle_offsets),
        fetch=FetchParts(
            find=broker.replicas.find,
            other_leader=partial(other_leader, broker.membership),
            topics=broker.registry.topics,
            topics_by_id=broker.registry.topics_by_id,
            sessions=FetchSessions(
                broker.config.max_incremental_fetch_session_cache_slots,
                now_ms=broker.clock.steady_ms,
                rng=broker.environment.rng,
                metrics=broker.metrics,
            ),
            fail_storage=broker.fail_storage,
            logs=broker.logs,
            metrics=broker.metrics,
            unsent_answers=broker.unsent_answers,
            stopping=broker.stopping,
        ),
        producer_ids=broker.producer_ids,
        groups=broker.groups,
        transactions=broker.transactions,
        metadata_rows=MetadataRows(broker.registry, broker.replicas, broker.membership),
        metrics=broker.metrics,
        clock=broker.clock,
        record_thread=broker.record_thread,
        tree=broker.tree,
        quotas=broker.quotas,
        access=broker.access,
        read_admin=partial(_read_admin, broker),
        fail_storage=broker.fail_storage,
        stopping=broker.stopping,
    )
