"""Every configuration name of the broker: its type, default and purpose.

The table is the dataclass itself: each field carries its kind and its description, so help,
parsing, `docs/configuration.md` and DescribeConfigs cannot disagree. Names are Kafka's in snake
case (`log_segment_bytes` is `log.segment.bytes`). `broker/config/loading.py` fills it, and
`broker/config/topic.py` holds what a topic may override.
"""

from __future__ import annotations

import enum
import functools
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace

from echoless.broker.config.advertised import (
    ClientAddress,
    ListenerNetworks,
    advertised_address,
    client_addresses,
    listener_networks,
)
from echoless.broker.config.groups import GroupConfig
from echoless.broker.config.listener_names import KAFKA_LISTENERS
from echoless.broker.config.listener_overrides import Overrides
from echoless.broker.config.security import EndpointIdentification, SecurityConfig
from echoless.broker.config.setting import Setting
from echoless.broker.config.setting import setting as _setting
from echoless.broker.config.stored import StoredConfig
from echoless.broker.config.transactions import TransactionSettings
from echoless.broker.config.values import (
    INT32_MAX,
    INT64_MAX,
    Address,
    PerAddress,
    Principals,
    boolean,
    choice,
    coordinator,
    credentials,
    duration,
    integer,
    listen_address,
    listen_addresses,
    names,
    optional_name,
    optional_path,
    password,
    path,
    per_address,
    principals,
    size,
)
from echoless.protocol.dedup import UnknownProducerId
from echoless.protocol.leases import LEASE_MARGIN_MS


class LogFlush(enum.StrEnum):
    """When records are forced to disk: by the system in its own time, or before they are acknowledged."""

    OS = "os"
    COMMIT = "commit"


class AllowFaults(enum.StrEnum):
    """Whether rules for faults may be set: `auto` while only this machine can reach the broker."""

    AUTO = "auto"
    TRUE = "true"
    FALSE = "false"


class FeatureUpgrades(enum.StrEnum):
    """The moment at which an upgraded cluster begins to store what older releases cannot read."""

    AUTO = "auto"
    MANUAL = "manual"


class Authorizer(enum.StrEnum):
    """The authority on what a client may do: none, or the access control lists of the cluster."""

    NONE = "none"
    ACL = "acl"


class IdempotentWriteAcl(enum.StrEnum):
    """The right that an idempotent producer needs: Write on any topic, or IdempotentWrite as before Kafka 2.8."""

    ANY_TOPIC = "any_topic"
    CLUSTER = "cluster"


class ProducerIdBinding(enum.StrEnum):
    """The clients that may use a producer id: all that may write, or only the principal that obtained it."""

    NONE = "none"
    PRINCIPAL = "principal"


class LogFormat(enum.StrEnum):
    """The format of log lines on standard error."""

    TEXT = "text"
    JSON = "json"


class LogLevel(enum.StrEnum):
    """The least important lines that are logged."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class TimestampType(enum.StrEnum):
    """Kafka's `message.timestamp.type`: the producer's time, or the broker's own."""

    CREATE_TIME = "CreateTime"
    LOG_APPEND_TIME = "LogAppendTime"


@dataclass(slots=True, kw_only=True, init=False, repr=False, eq=False)
class Config(StoredConfig):
    """One broker's configuration, complete and checked. Sizes are bytes, times milliseconds.

    It has no `repr`, so that none of its secrets is printed.
    """

    broker_id: int = _setting(1, integer(0), "id of this broker, unique in its cluster", "ID")
    listen: tuple[Address, ...] = _setting(
        (Address("127.0.0.1", 9092),),
        listen_addresses(len(KAFKA_LISTENERS)),
        "where Kafka clients connect; a second address is for those outside of the brokers' network",
        "HOST:PORT[,HOST:PORT]",
    )
    advertise: tuple[ClientAddress, ...] = _setting(
        (),
        client_addresses(len(KAFKA_LISTENERS)),
        "addresses given to clients, where they differ from --listen; arrival: the one at which their connection arrived",
        "HOST:PORT[,HOST:PORT]",
    )
    advertise_networks: ListenerNetworks = _setting(
        ListenerNetworks(),
        listener_networks(),
        "addresses given to clients of these networks instead; the longest prefix wins (docs/listeners.md)",
    )
    native_listen: Address = _setting(
        Address("127.0.0.1", 9093),
        listen_address(),
        "where msgpack clients and other brokers connect",
        "HOST:PORT",
    )
    native_advertise: Address | None = _setting(
        None,
        advertised_address(),
        "address given to other brokers; if not set: --native-listen, or where that is every "
        "interface, the host of --advertise",
    )
    admin_listen: Address = _setting(
        Address("127.0.0.1", 8080),
        listen_address(),
        "HTTP: health, metrics, topics, producers, decisions",
        "HOST:PORT",
    )
    admin_hosts: tuple[str, ...] = _setting(
        (),
        names(),
        "further names in the Host header of admin requests, besides addresses, localhost and the "
        "names to listen on and to advertise",
    )
    admin_token_file: str | None = _setting(
        None,
        optional_path(),
        "tokens for admin requests, one a line: TOKEN [read|change [TYPE:NAME]] (docs/admin.md)",
    )
    admin_insecure: bool = _setting(
        False,
        boolean(),
        "let other machines use the admin port without a token or a certificate",
    )
    broker_rack: str | None = _setting(
        None,
        optional_name(),
        "rack or zone of this broker: replicas of a partition are spread over racks",
    )
    data_dir: str = _setting(
        "./echoless-data", path(), "where logs and producer state are kept", "DIR"
    )
    coordinator: str = _setting(
        "embedded",
        coordinator(),
        "embedded, for a single broker, or zookeeper://h1:2181,h2:2181/chroot",
        "URL",
    )
    faults: str | None = _setting(
        None,
        optional_path(),
        "rules for faults that hold from the start on, in JSON or TOML (docs/faults.md)",
        "FILE",
    )
    allow_faults: AllowFaults = _setting(
        AllowFaults.AUTO,
        choice(AllowFaults),
        "whether rules for faults may be set; auto: only if all listeners are on loopback and authorizer is none",
        "true|false|auto",
        "true",
    )
    stop_with_input: bool = _setting(
        False,
        boolean(),
        "stop when standard input ends: for a broker that must not outlive the process that has started it",
    )
    log_format: LogFormat = _setting(
        LogFormat.TEXT, choice(LogFormat), "log lines for people or as JSON", "text|json"
    )
    log_level: LogLevel = _setting(
        LogLevel.INFO, choice(LogLevel), "least important lines to log", "LEVEL"
    )

    num_partitions: int = _setting(1, integer(1, 10_000), "partitions of an auto-created topic")
    default_replication_factor: int = _setting(
        1, integer(1, 100), "replicas of an auto-created topic"
    )
    min_insync_replicas: int = _setting(
        1, integer(1, 100), "in-sync replicas that acks=all needs at least"
    )
    auto_create_topics_enable: bool = _setting(
        True, boolean(), "create a topic when a client first asks for it"
    )
    unclean_leader_election_enable: bool = _setting(
        False, boolean(), "let a replica lead that may lack acknowledged records"
    )
    feature_upgrades: FeatureUpgrades = _setting(
        FeatureUpgrades.AUTO,
        choice(FeatureUpgrades),
        "auto: the level of echoless.version rises when all brokers support it; manual: by echoless features upgrade alone",
    )
    replica_lag_time_max_ms: int = _setting(
        10_000, duration(1), "a follower behind for longer leaves the in-sync replicas"
    )
    zookeeper_session_timeout_ms: int = _setting(
        3000,
        duration(100, INT32_MAX),
        "how long ZooKeeper waits for a silent broker; it grants two of its ticks at least",
    )
    zookeeper_connection_timeout_ms: int = _setting(
        18_000, duration(1, INT32_MAX), "how long a starting broker waits for ZooKeeper"
    )
    zookeeper_digest: str | None = _setting(
        None,
        credentials(),
        "digest credentials for ZooKeeper; nodes created with them are closed to everybody else",
    )
    zookeeper_ssl_client_enable: bool = _setting(
        False, boolean(), "connect to ZooKeeper by TLS (its secureClientPort)"
    )
    zookeeper_ssl_truststore_location: str | None = _setting(
        None, optional_path(), "PEM: who may sign ZooKeeper's certificate; none: the system's list"
    )
    zookeeper_ssl_keystore_location: str | None = _setting(
        None, optional_path(), "PEM: the broker's key and certificate, where ZooKeeper asks for one"
    )
    zookeeper_ssl_keystore_password: str | None = _setting(
        None, password(), "password of the key in zookeeper_ssl_keystore_location"
    )
    zookeeper_ssl_endpoint_identification_algorithm: EndpointIdentification = _setting(
        EndpointIdentification.HTTPS,
        choice(EndpointIdentification),
        "https: ZooKeeper's certificate must be for the host in --coordinator; none: for any",
    )

    log_segment_bytes: int = _setting(
        134_217_728, size(14, INT32_MAX), "a segment file is closed at this size"
    )
    log_roll_ms: int = _setting(
        604_800_000, duration(1), "a segment file is closed at this age, even when small"
    )
    log_retention_ms: int = _setting(
        604_800_000, duration(-1), "records older than this are deleted; -1: never"
    )
    log_retention_bytes: int = _setting(
        -1, size(-1), "a partition larger than this loses its oldest segments; -1: no limit"
    )
    log_index_interval_bytes: int = _setting(
        4096, size(0, INT32_MAX), "bytes of log between two index entries"
    )
    log_message_timestamp_type: TimestampType = _setting(
        TimestampType.CREATE_TIME, choice(TimestampType), "whose clock stamps the records"
    )
    log_message_timestamp_before_max_ms: int = _setting(
        INT64_MAX, duration(0), "how far a record's timestamp may lie in the past"
    )
    log_message_timestamp_after_max_ms: int = _setting(
        INT64_MAX, duration(0), "how far a record's timestamp may lie in the future"
    )
    log_segment_delete_delay_ms: int = _setting(
        60_000, duration(0), "files of a deleted topic are removed this long after the deletion"
    )
    log_scrub_bytes_per_second: int = _setting(
        1_048_576,
        size(0, INT32_MAX),
        "how fast closed segments are read again to find damage; 0: never",
    )
    log_flush: LogFlush = _setting(
        LogFlush.OS,
        choice(LogFlush),
        "commit: fsync before each acknowledgement (group-committed); os: leave it to the system",
    )

    message_max_bytes: int = _setting(
        1_048_588, size(0, INT32_MAX), "largest record batch, as sent (compressed)"
    )
    request_size_max: int = _setting(
        104_857_600, size(1024, INT32_MAX), "largest request; a larger one ends the connection"
    )
    connections_max: int = _setting(INT32_MAX, integer(1), "connections open at the same time")
    connections_max_per_ip: int = _setting(
        INT32_MAX, integer(1), "connections of one address open at the same time"
    )
    connections_max_per_ip_overrides: PerAddress = _setting(
        PerAddress(), per_address(), "the same for single addresses; 0: none", "IP:NUMBER[,...]"
    )
    connection_creation_rate_max: int = _setting(
        INT32_MAX,
        integer(1),
        "Kafka connections made per second; those beyond eleven seconds' worth are read later, in turns by address",
    )
    connections_max_idle_ms: int = _setting(
        600_000, duration(-1), "a connection silent for longer is closed; -1: never"
    )

    max_incremental_fetch_session_cache_slots: int = _setting(
        1000, integer(0, INT32_MAX), "fetch sessions open at the same time; 0: none"
    )

    producer_id_block_size: int = _setting(
        1000, integer(1, 1_000_000), "producer ids claimed from the coordinator at a time"
    )
    producer_id_binding: ProducerIdBinding = _setting(
        ProducerIdBinding.NONE,
        choice(ProducerIdBinding, true=ProducerIdBinding.PRINCIPAL, false=ProducerIdBinding.NONE),
        "principal: a producer id is of use only to the principal that obtained it",
    )
    producer_id_expiration_ms: int = _setting(
        86_400_000,
        duration(1, INT32_MAX),
        "a producer that appended nothing for this long is forgotten",
    )
    producer_lease_ms: int = _setting(
        86_400_000,
        duration(1, INT32_MAX - LEASE_MARGIN_MS),
        "how long a leased producer id may be used; remembered 1 h longer, whatever else is set",
    )
    producer_state_batches_to_retain: int = _setting(
        5, integer(1, 1024), "batches remembered per producer and partition to recognise repeats"
    )
    unknown_producer_id: UnknownProducerId = _setting(
        UnknownProducerId.REJECT,
        choice(UnknownProducerId),
        "a producer that begins in mid-sequence on a partition: refused, or accepted as Kafka does",
    )
    producers_per_partition_max: int = _setting(
        0,
        integer(0),
        "producers remembered per partition, least recently used go first, leased never; 0: no limit",
    )
    forgotten_producers_per_partition_max: int = _setting(
        10_000,
        integer(0),
        "producers per partition that expired or were evicted and can still go on; 90 bytes each",
    )

    authorizer: Authorizer = _setting(
        Authorizer.NONE,
        choice(Authorizer),
        "acl: clients may do what ACLs allow; none: everything",
    )
    super_users: Principals = _setting(
        Principals(), principals(), "principals that may do everything, whatever ACLs say"
    )
    allow_everyone_if_no_acl_found: bool = _setting(
        False, boolean(), "whether a resource that no ACL is about is open to everyone"
    )
    idempotent_write_acl: IdempotentWriteAcl = _setting(
        IdempotentWriteAcl.ANY_TOPIC,
        choice(IdempotentWriteAcl),
        "what an idempotent producer needs, besides Write on its topics: Write on any topic, or "
        "IdempotentWrite on the cluster",
    )

    listener_overrides: Overrides = field(default_factory=dict)
    """The tables `[listener.NAME]` of the configuration file; they have no name of their own."""

    def of_listener(self, listener: str) -> Config:
        """The configuration as it holds for one listener."""
        overrides = self.listener_overrides.get(listener)
        return replace(self, listener_overrides={}, **overrides) if overrides else self

    @property
    def zookeeper_hosts(self) -> str | None:
        """`h1:2181,h2:2181/chroot`, or None with the embedded coordinator."""
        scheme, _, hosts = self.coordinator.partition("://")
        return hosts if scheme == "zookeeper" else None


@functools.cache
def settings() -> Mapping[str, Setting]:
    """Every configuration name with its metadata, in the order of `Config`; the inherited ones last."""
    bases = [
        {f.name for f in fields(declared)}
        for declared in (SecurityConfig, TransactionSettings, GroupConfig, StoredConfig)
    ]
    named = [f for f in fields(Config) if f.metadata]
    ordered = sorted(named, key=lambda f: [f.name in base for base in bases])
    return {f.name: Setting(f.name, f.default, **f.metadata) for f in ordered}
