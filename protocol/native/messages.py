"""The messages that a client may send on the native port; `docs/native.md` is their reference.

Each reads itself from `Fields` and raises `KafkaError` INVALID_REQUEST for invalid values. Fields
that are not named here are ignored, so that a newer client may send more.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from echoless.protocol.errors import ErrorCode
from echoless.protocol.fetch import READ_COMMITTED, READ_UNCOMMITTED
from echoless.protocol.native.fields import Fields
from echoless.protocol.native.records import RECORDS_BYTES_MAX, read_message_records
from echoless.protocol.record_batch import Buffer, Codec
from echoless.protocol.records import build_batch
from echoless.protocol.sequence import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE

VERSION_MIN: Final = 1
VERSION_MAX: Final = 1
"""Highest protocol version; a connection speaks the lowest one until a hello says otherwise."""
UNKNOWN_BROKER: Final = -1
"""The broker id in a hello that comes before the log-in."""
UNKNOWN_CLOCK: Final = -1
"""The clock in such a hello."""

_INT64_MIN: Final = -(2**63)
_INT64_MAX: Final = 2**63 - 1
_UINT64_MAX: Final = 2**64 - 1
_CODECS: Final = {codec.name.lower(): codec for codec in Codec}
_ISOLATION_LEVELS: Final = {
    "read_uncommitted": READ_UNCOMMITTED,
    "read_committed": READ_COMMITTED,
}
_IDENTITY: Final = ("producer_id", "producer_epoch", "base_sequence")
ANY_PRODUCER: Final = -1
PARTITIONS_BYTES_MAX: Final = 4 * 1024 * 1024
"""Limit on the partitions of one message."""
BUILT_AT_ONCE_BYTES: Final = 4096
"""Limit on records that are built into a batch as they are read: 3 ms for the costliest."""
PRODUCERS_MAX: Final = 10_000
"""Limit on the entries of one `producer_state` answer."""


@dataclass(slots=True, frozen=True)
class Hello:
    """Agrees on a version, and names the client in the broker's logs and decisions."""

    version: int
    client_id: str

    @classmethod
    def read(cls, fields: Fields) -> Hello:
        return cls(fields.integer("version", VERSION_MIN), fields.text("client_id", ""))


@dataclass(slots=True, frozen=True)
class Sasl:
    """One token of a log-in."""

    mechanism: str
    data: bytes

    @classmethod
    def read(cls, fields: Fields) -> Sasl:
        return cls(fields.text("mechanism"), bytes(fields.binary("data")))

    def __repr__(self) -> str:
        """Leaves the token out: it may be a password."""
        return f"Sasl({self.mechanism!r})"


@dataclass(slots=True, frozen=True)
class InitProducerId:
    """Asks for a producer id that no one else has."""

    @classmethod
    def read(cls, _fields: Fields) -> InitProducerId:
        return cls()


class LeaseWanted(NamedTuple):
    """A partition for which a producer id is leased."""

    topic: str
    partition: int


@dataclass(slots=True, frozen=True)
class LeasePid:
    """Asks for producer ids to use for a fixed time, one per partition."""

    partitions: list[LeaseWanted]
    is_single: bool
    """Whether it named its one partition with the fields `topic` and `partition`."""

    @classmethod
    def read(cls, fields: Fields) -> LeasePid:
        if ("partitions" in fields) == ("topic" in fields):
            raise fields.complaint("either topic and partition or partitions is needed")
        if "topic" in fields:
            return cls([LeaseWanted(fields.text("topic"), fields.integer("partition"))], True)
        entries = fields.array("partitions", PARTITIONS_BYTES_MAX)
        if not all(map(_is_partition, entries)):
            raise fields.complaint("each of partitions takes [topic, partition]")
        return cls([LeaseWanted(*entry) for entry in entries], False)


def _is_partition(entry: object) -> bool:
    match entry:
        case [str(), int(partition)]:
            return not isinstance(partition, bool) and abs(partition) < 2**31
    return False


@dataclass(
    slots=True
)  # not frozen: there is one for every batch, and it would take five times as long to make
class Produce:
    """One batch for one partition."""

    topic: str
    partition: int
    acks: int
    timeout_ms: int
    batch: Buffer | None
    """A complete batch, as on the Kafka port: with its CRC, producer id, epoch and sequence."""
    correlation_id: int = 0
    """Shown in the decision about the batch."""
    unbuilt: Fields | None = None

    @classmethod
    def read(cls, fields: Fields) -> Produce:
        if ("records" in fields) == ("batch" in fields):
            raise fields.complaint("either records or batch is needed")
        is_built = not BUILT_AT_ONCE_BYTES < fields.size("records") <= RECORDS_BYTES_MAX
        return cls(
            topic=fields.text("topic"),
            partition=fields.integer("partition"),
            acks=fields.integer("acks", -1),
            timeout_ms=fields.integer("timeout_ms", 30_000),
            batch=_batch(fields) if is_built else None,
            unbuilt=None if is_built else fields,
            correlation_id=fields.integer("correlation_id", 0, least=_INT64_MIN, most=_UINT64_MAX),
        )

    def built(self) -> Produce:
        """Returns a copy with its batch built, which takes up to a second. Raises `KafkaError`."""
        if self.unbuilt is None:
            return self
        return replace(self, batch=_batch(self.unbuilt), unbuilt=None)


def _batch(fields: Fields) -> Buffer:
    return _ready_made(fields) if "batch" in fields else _built(fields)


def _ready_made(fields: Fields) -> memoryview:
    for name in (*_IDENTITY, "compression"):
        if name in fields:
            raise fields.complaint(f"{name} is inside the batch already")
    return fields.binary("batch")


def _built(fields: Fields) -> bytes:
    """The batch of `records`, with exactly the producer id, epoch and sequence that were sent."""
    compression = fields.text("compression", "none")
    if compression not in _CODECS:
        raise fields.complaint(f"compression takes {', '.join(_CODECS)}, not {compression!r}")
    records = read_message_records(fields)
    if not records:
        raise fields.complaint("a batch holds at least one record", ErrorCode.INVALID_RECORD)
    return build_batch(
        records,
        codec=_CODECS[compression],
        producer_id=fields.integer(
            "producer_id", NO_PRODUCER_ID, least=_INT64_MIN, most=_INT64_MAX
        ),
        producer_epoch=fields.integer(
            "producer_epoch", NO_PRODUCER_EPOCH, least=-(2**15), most=2**15 - 1
        ),
        base_sequence=fields.integer("base_sequence", NO_SEQUENCE),
    )


class Fetch(NamedTuple):
    """Asks for records of one partition from an offset on."""

    topic: str
    partition: int
    offset: int
    max_wait_ms: int
    min_bytes: int
    bytes_max: int
    is_raw: bool
    """Whether the batches are wanted as they are stored, instead of their records."""
    isolation_level: int
    """`READ_UNCOMMITTED` or `READ_COMMITTED`."""

    @classmethod
    def read(cls, fields: Fields) -> Fetch:
        return cls(
            topic=fields.text("topic"),
            partition=fields.integer("partition"),
            offset=fields.integer("offset", least=_INT64_MIN, most=_INT64_MAX),
            max_wait_ms=fields.integer("max_wait_ms", 500),
            min_bytes=fields.integer("min_bytes", 1),
            bytes_max=fields.integer("bytes_max", 1024 * 1024),
            is_raw=fields.boolean("raw", default=False),
            isolation_level=_isolation_level(fields),
        )


def _isolation_level(fields: Fields) -> int:
    name = fields.text("isolation", "read_uncommitted")
    level = _ISOLATION_LEVELS.get(name)
    if level is None:
        raise fields.complaint(f"isolation takes {' or '.join(_ISOLATION_LEVELS)}, not {name!r}")
    return level


@dataclass(slots=True, frozen=True, kw_only=True)
class ProducerStateRequest:
    """Asks what one partition knows about its producers."""

    topic: str
    partition: int
    producer_id: int
    """A producer id, or `ANY_PRODUCER`."""
    skip: int
    limit: int

    @classmethod
    def read(cls, fields: Fields) -> ProducerStateRequest:
        return cls(
            topic=fields.text("topic"),
            partition=fields.integer("partition"),
            producer_id=fields.integer(
                "producer_id", ANY_PRODUCER, least=ANY_PRODUCER, most=_INT64_MAX
            ),
            skip=fields.integer("skip", 0, least=0),
            limit=fields.integer("limit", 1000, least=0, most=PRODUCERS_MAX),
        )


@dataclass(slots=True, frozen=True)
class Metadata:
    """Asks which topics exist, and who leads their partitions."""

    topics: list[str] | None
    """None: all of them."""
    may_create: bool

    @classmethod
    def read(cls, fields: Fields) -> Metadata:
        topics = fields.texts("topics") if "topics" in fields else None
        return cls(topics, fields.boolean("may_create", default=False))


@dataclass(slots=True, frozen=True, kw_only=True)
class CreateTopic:
    """Creates a topic; a number of -1 is left to the broker."""

    topic: str
    partitions: int
    replication_factor: int
    configs: dict[str, str]

    @classmethod
    def read(cls, fields: Fields) -> CreateTopic:
        return cls(
            topic=fields.text("topic"),
            partitions=fields.integer("partitions", -1),
            replication_factor=fields.integer("replication_factor", -1),
            configs=fields.text_map("configs"),
        )
