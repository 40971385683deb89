"""The sink's options: Spark's names for its Kafka sink, and ours. Upper and lower case are one.

| option | meaning |
|---|---|
| `kafka.bootstrap.servers` | required |
| `topic` | where all rows go; without it, each row's column `topic` says |
| `sinkName` | under which name the ledger is kept |
| `ledgerLocation` | a path or URI |
| `ledgerSingleWriter` | true: a ledger that cannot create files conditionally is taken all the same |
| `batchId` | of a job that is no stream: which run this is, 0 by default |
| `sortWithinPartitions` | true, or columns: the order of rows within a Spark partition |
| `kafka.*` | see `_PRODUCER_OPTIONS` |

An option that means nothing here is refused by name: whoever sets it expects something.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from client.settings import Settings
from pipeline.exactly_once.errors import OptionError
from protocol.record_batch import Codec

BOOTSTRAP_SERVERS: Final = "kafka.bootstrap.servers"
TOPIC: Final = "topic"
SINK_NAME: Final = "sinkName"
LEDGER_LOCATION: Final = "ledgerLocation"
LEDGER_SINGLE_WRITER: Final = "ledgerSingleWriter"
BATCH_ID: Final = "batchId"
SORT_WITHIN_PARTITIONS: Final = "sortWithinPartitions"
CHECKPOINT_LOCATION: Final = "checkpointLocation"

ALL_COLUMNS: Final = "true"
"""Of `sortWithinPartitions`: by all that the sink writes."""
SINK_BATCH_BYTES_MAX: Final = 256 * 1024
"""Before compression. Rows come in thousands, so that larger batches fill; topics take 1 MiB."""

_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,200}")
_SPARKS_OWN: Final = frozenset(
    {"checkpointlocation", "path", "queryname", "asyncprogresstrackingenabled"}
)
"""What Spark hands to every sink."""


@dataclass(slots=True, frozen=True, kw_only=True)
class SinkOptions:
    bootstrap_servers: str
    name: str
    ledger: str
    ledger_has_single_writer: bool = False
    topic: str | None = None
    batch_id: int = 0
    sort_columns: tuple[str, ...] | None = None
    """None: the order in which Spark gives the rows. Empty: all columns."""
    settings: Settings


def read_options(
    options: Mapping[str, str], *, name: str | None, ledger: str | None
) -> SinkOptions:
    """`name` and `ledger`: what holds where the options do not say. Raises `OptionError`."""
    given = {key.lower(): (key, str(value)) for key, value in options.items()}
    known = {
        option.lower(): given.pop(option.lower())[1]
        for option in _READERS
        if option.lower() in given
    }
    producer = {key: given.pop(key) for key in list(given) if key in _PRODUCER_OPTIONS}
    for key, (written, _) in given.items():
        if key not in _SPARKS_OWN:
            raise OptionError(f"option {written}: the sink does not have it")
    fields = {
        field: read(known[o.lower()]) for o, (field, read) in _READERS.items() if o.lower() in known
    }
    fields.setdefault("name", name)
    fields.setdefault("ledger", ledger)
    return SinkOptions(**_complete(fields), settings=_settings(producer))


def _complete(fields: dict[str, Any]) -> dict[str, Any]:
    """Raises `OptionError` for what has to be there and is not."""
    for option, field, remedy in _REQUIRED:
        if not fields.get(field):
            raise OptionError(f"option {option} is missing: {remedy}")
    if not _NAME.fullmatch(fields["name"]):
        raise OptionError(
            f"option {SINK_NAME}: {fields['name']!r} is no name; letters, digits, . _ - are"
        )
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


def _text(value: str) -> str:
    return value


def _bool(value: str) -> bool:
    if value.lower() not in ("true", "false"):
        raise OptionError(f"true or false is needed, not {value!r}")
    return value.lower() == "true"


def _columns(value: str) -> tuple[str, ...] | None:
    if value.lower() == "false":
        return None
    if value.lower() == ALL_COLUMNS:
        return ()
    return tuple(column.strip() for column in value.split(","))


_READERS: Final[Mapping[str, tuple[str, Callable[[str], Any]]]] = {
    BOOTSTRAP_SERVERS: ("bootstrap_servers", _text),
    TOPIC: ("topic", _text),
    SINK_NAME: ("name", _text),
    LEDGER_LOCATION: ("ledger", _text),
    LEDGER_SINGLE_WRITER: ("ledger_has_single_writer", _bool),
    BATCH_ID: ("batch_id", int),
    SORT_WITHIN_PARTITIONS: ("sort_columns", _columns),
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
    # Said of a producer that is set up for more than one sink: what ours does anyway.
    "kafka.linger.ms": (None, int),
    "kafka.acks": (None, _must_be("all", "-1")),
    "kafka.enable.idempotence": (None, _must_be("true")),
    "kafka.security.protocol": (None, _must_be("plaintext")),
}
"""Kafka's producer settings -> the field of `client.settings.Settings`; None: only checked."""


def _settings(given: Mapping[str, tuple[str, str]]) -> Settings:
    fields: dict[str, Any] = {"batch_bytes_max": SINK_BATCH_BYTES_MAX}
    for key, (written, value) in given.items():
        field, read = _PRODUCER_OPTIONS[key]
        try:
            converted = read(value)
        except (ValueError, KeyError) as error:
            raise OptionError(f"option {written}: {value!r} is not possible: {error}") from error
        if field is not None:
            fields[field] = converted
    try:
        return Settings(**fields)
    except ValueError as error:
        raise OptionError(f"kafka options: {error}") from error
