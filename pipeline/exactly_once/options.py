"""The sink's options: Spark's names for its Kafka sink, and ours. Case does not matter.

| option | meaning |
|---|---|
| `kafka.bootstrap.servers` | required |
| `topic` | the topic of all rows; without it, each row's column `topic` |
| `sinkName` | the name under which the ledger is kept |
| `ledgerLocation` | a path or URI |
| `ledgerSingleWriter` | true: accept a ledger that cannot create files conditionally |
| `ledger.*` | settings of the ledger's store, see `store_settings.py` |
| `acceptNewLedger` | true: a stream may begin an empty ledger with a batch above 0 |
| `batchId` | in a job that is not a stream: which run this is, 0 by default |
| `sortWithinPartitions` | true, or columns: the order of rows within a Spark partition |
| `kafka.security.protocol`, `kafka.sasl.*`, `kafka.ssl.*` | see `client/security_options.py` |
| `kafka.*` | see `_PRODUCER_OPTIONS` |

An option that has no meaning here is refused by name: whoever set it expects an effect.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from echoless.client.cluster import parse_addresses
from echoless.client.security import Security
from echoless.client.security_options import SecurityOptionError
from echoless.client.settings import Settings
from echoless.pipeline.exactly_once.errors import OptionError
from echoless.pipeline.exactly_once.store_settings import (
    NO_SETTINGS,
    STORE_PREFIX,
    StoreSettings,
)
from echoless.pipeline.security import is_security_option, security_in
from echoless.protocol.record_batch import Codec

BOOTSTRAP_SERVERS: Final = "kafka.bootstrap.servers"
TOPIC: Final = "topic"
SINK_NAME: Final = "sinkName"
LEDGER_LOCATION: Final = "ledgerLocation"
LEDGER_SINGLE_WRITER: Final = "ledgerSingleWriter"
BATCH_ID: Final = "batchId"
NEW_LEDGER: Final = "acceptNewLedger"
SORT_WITHIN_PARTITIONS: Final = "sortWithinPartitions"
CHECKPOINT_LOCATION: Final = "checkpointLocation"

ALL_COLUMNS: Final = "true"
"""Value of `sortWithinPartitions` that sorts by all columns the sink writes."""
SINK_BATCH_BYTES_MAX: Final = 256 * 1024
"""Bytes of a batch before compression. Rows come by the thousand, so batches fill; topics accept 1 MiB."""

_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,200}")
_SPARKS_OWN: Final = frozenset({"checkpointlocation", "queryname"})
"""Lower-case names of options that Spark passes to every sink."""


@dataclass(slots=True, frozen=True, kw_only=True)
class SinkOptions:
    """Options of a sink, parsed and checked."""

    bootstrap_servers: str
    name: str
    ledger: str
    ledger_has_single_writer: bool = False
    store: StoreSettings = NO_SETTINGS
    """Settings of the ledger's store."""
    accepts_new_ledger: bool = False
    """Whether a stream may begin an empty ledger with a batch above 0."""
    topic: str | None = None
    batch_id: int = 0
    sort_columns: tuple[str, ...] | None = None
    """Columns to sort by first. Empty: all columns. None: rows stay as Spark delivers them."""
    ledger_id: str | None = None
    """Id of the ledger that the driver sees (`ledger_identity.py`); None: not checked."""
    settings: Settings


def read_options(
    options: Mapping[str, str], *, name: str | None, ledger: str | None
) -> SinkOptions:
    """Parses the options; `name` and `ledger` are defaults. Raises `OptionError`."""
    own: dict[str, Any] = {}
    producer: dict[str, Any] = {"batch_bytes_max": SINK_BATCH_BYTES_MAX}
    for option, text in options.items():
        key = option.lower()
        if key in _READERS:
            field, read = _READERS[key]
            own[field] = _converted(option, text, read)
        elif key in _PRODUCER_OPTIONS:
            setting, read = _PRODUCER_OPTIONS[key]
            value = _converted(option, text, read)
            producer |= {} if setting is None else {setting: value}
        elif key in WITHOUT_EFFECT or key.startswith(STORE_PREFIX):
            continue
        elif not is_security_option(key) and key not in _SPARKS_OWN:
            raise OptionError(f"option {option}: the sink does not have it")
    producer["security"] = _security(options)
    own.setdefault("name", name)
    own.setdefault("ledger", ledger)
    store = StoreSettings(store_options(options))
    return SinkOptions(**_complete(own), store=store, settings=_settings(producer))


def store_options(options: Mapping[str, str]) -> dict[str, str]:
    """Returns the options `ledger.*` without that prefix, with names in lower case."""
    return {
        name.lower().removeprefix(STORE_PREFIX): value
        for name, value in options.items()
        if name.lower().startswith(STORE_PREFIX)
    }


def _security(options: Mapping[str, str]) -> Security:
    try:
        return security_in(options)
    except SecurityOptionError as error:
        raise OptionError(f"options kafka.*: {error}") from error


def _settings(fields: dict[str, Any]) -> Settings:
    try:
        return Settings(**fields)
    except ValueError as error:
        raise OptionError(f"options kafka.*: {error}") from error


def _converted(option: str, text: str, read: Callable[[str], Any]) -> Any:
    try:
        return read(text)
    except (ValueError, KeyError) as error:
        raise OptionError(f"option {option}: {text!r} is not possible: {error}") from error


def _complete(fields: dict[str, Any]) -> dict[str, Any]:
    """Raises `OptionError` if a required option is missing."""
    for option, field, remedy in _REQUIRED:
        if not fields.get(field):
            raise OptionError(f"option {option} is missing: {remedy}")
    if not _NAME.fullmatch(fields["name"]):
        text = f"option {SINK_NAME}: {fields['name']!r} is not a name; letters, digits, . _ - are"
        raise OptionError(text)
    return fields


_REQUIRED: Final = (
    (BOOTSTRAP_SERVERS, "bootstrap_servers", "HOST:PORT[,HOST:PORT...] of the cluster"),
    (
        SINK_NAME,
        "name",
        "a name that stays the same when the job is started again, e.g. orders-2026-11-21",
    ),
    (
        LEDGER_LOCATION,
        "ledger",
        "a directory that outlives the job; a stream with the option checkpointLocation has it there",
    ),
)


def _addresses(value: str) -> str:
    parse_addresses(value)
    return value


def _bool(value: str) -> bool:
    if value.lower() not in ("true", "false"):
        raise ValueError("true or false is needed")
    return value.lower() == "true"


def _columns(value: str) -> tuple[str, ...] | None:
    if value.lower() == "false":
        return None
    if value.lower() == ALL_COLUMNS:
        return ()
    return tuple(column.strip() for column in value.split(","))


_READERS: Final[Mapping[str, tuple[str, Callable[[str], Any]]]] = {
    BOOTSTRAP_SERVERS: ("bootstrap_servers", _addresses),
    TOPIC: ("topic", str),
    SINK_NAME.lower(): ("name", str),
    LEDGER_LOCATION.lower(): ("ledger", str),
    LEDGER_SINGLE_WRITER.lower(): ("ledger_has_single_writer", _bool),
    BATCH_ID.lower(): ("batch_id", int),
    NEW_LEDGER.lower(): ("accepts_new_ledger", _bool),
    SORT_WITHIN_PARTITIONS.lower(): ("sort_columns", _columns),
}


def _seconds(value: str) -> float:
    return int(value) / 1000


def _codec(value: str) -> Codec:
    return Codec[value.upper()]


def _must_be(*accepted: str) -> Callable[[str], None]:
    def check(value: str) -> None:
        if value.lower() not in accepted:
            raise ValueError(f"the sink does {' or '.join(accepted)} only")

    return check


WITHOUT_EFFECT: Final = frozenset(
    {
        "includeheaders",  # headers are written if there is a column of that name
        *(
            f"kafka.{name}"
            for name in (
                *(
                    "client.dns.lookup",
                    "client.id",
                    "connections.max.idle.ms",
                    "enable.metrics.push",
                ),
                *(
                    "max.block.ms",
                    "metadata.max.age.ms",
                    "metadata.max.idle.ms",
                    "metadata.recovery.strategy",
                ),
                *("metrics.num.samples", "metrics.recording.level", "metrics.sample.window.ms"),
                *(
                    "receive.buffer.bytes",
                    "reconnect.backoff.max.ms",
                    "reconnect.backoff.ms",
                    "retries",
                ),
                *("send.buffer.bytes", "socket.connection.setup.timeout.max.ms"),
                *("socket.connection.setup.timeout.ms", "compression.gzip.level"),
                *("compression.lz4.level", "compression.zstd.level"),
            )
        ),
    }
)
"""Lower-case names of options that are accepted, and change nothing about what is stored."""


def without_effect(options: Mapping[str, str]) -> list[str]:
    """Returns the names of those options that have no effect."""
    return sorted(name for name in options if name.lower() in WITHOUT_EFFECT)


_PRODUCER_OPTIONS: Final[Mapping[str, tuple[str | None, Callable[[str], Any]]]] = {
    "kafka.compression.type": ("compression", _codec),
    "kafka.batch.size": ("batch_bytes_max", int),
    "kafka.buffer.memory": ("buffer_bytes_max", int),
    "kafka.max.in.flight.requests.per.connection": ("in_flight_max", int),
    "kafka.delivery.timeout.ms": ("delivery_timeout_s", _seconds),
    "kafka.request.timeout.ms": ("request_timeout_s", _seconds),
    "kafka.retry.backoff.ms": ("retry_backoff_s", _seconds),
    "kafka.retry.backoff.max.ms": ("retry_backoff_max_s", _seconds),
    "kafka.allow.auto.create.topics": ("auto_create_topics", _bool),
    # Accepted for configurations that several producers share: the sink always behaves this way.
    "kafka.linger.ms": (None, int),
    "kafka.acks": (None, _must_be("all", "-1")),
    "kafka.enable.idempotence": (None, _must_be("true")),
}
"""Kafka's producer settings: the field of `echoless.client.settings.Settings` (None: only checked), and its parser."""
