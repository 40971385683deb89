"""The reader's options: those of Spark's own Kafka source, by name and meaning. Case does not matter.

`docs/reader.md` lists them. An option that is not known is refused by name, since its user expects an effect.
"""

from __future__ import annotations

import difflib
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from echoless.client.cluster import parse_addresses
from echoless.client.security import NO_SECURITY, Security
from echoless.client.security_options import SecurityOptionError
from echoless.pipeline.reading.bounds import (
    EARLIEST,
    LATEST,
    Bound,
    parse_offsets_bound,
    parse_time_bound,
    parse_times_bound,
)
from echoless.pipeline.reading.columns import COLUMNS, HEADERS
from echoless.pipeline.reading.errors import ReadOptionError
from echoless.pipeline.reading.topic_choice import (
    TopicChoice,
    parse_assign,
    parse_pattern,
    parse_subscribe,
)
from echoless.pipeline.security import is_security_option, security_in

logger = logging.getLogger(__name__)

BOOTSTRAP_SERVERS: Final = "kafka.bootstrap.servers"
_INT32_MAX: Final = 2**31 - 1
"""Largest number that a request has room for."""
READ_UNCOMMITTED: Final = 0
READ_COMMITTED: Final = 1
_ISOLATION: Final = {"read_uncommitted": READ_UNCOMMITTED, "read_committed": READ_COMMITTED}
_CHOICES: Final = ("subscribe", "subscribePattern", "assign")
_STARTS: Final = ("startingOffsets", "startingOffsetsByTimestamp", "startingTimestamp")
_ENDS: Final = ("endingOffsets", "endingOffsetsByTimestamp", "endingTimestamp")
_OF_STREAMS: Final = ("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay")


@dataclass(slots=True, frozen=True, kw_only=True)
class ReaderOptions:
    """Options of a reader, parsed and checked. It travels to the tasks."""

    bootstrap_servers: str
    topics: TopicChoice
    start: Bound
    end: Bound
    starts_late: bool = False
    """Whether to begin at a partition's end if it has no record as late as the starting timestamp."""
    fails_on_data_loss: bool = True
    includes_headers: bool = False
    columns: tuple[str, ...] = COLUMNS
    offsets_max: int | None = None
    """Offsets of a micro-batch at most (`maxOffsetsPerTrigger`)."""
    offsets_min: int | None = None
    """Offsets that a micro-batch waits for, `trigger_delay_s` at most."""
    trigger_delay_s: float = 900.0
    tasks_min: int | None = None
    """Spark partitions at least, if there are as many offsets (`minPartitions`)."""
    task_records_max: int | None = None
    isolation: int = READ_UNCOMMITTED
    attempts: int = 3
    """Attempts of the driver to ask for offsets."""
    retry_s: float = 1.0
    patience_s: float = 120.0
    """Time within which a task has to get further (`kafkaConsumer.pollTimeoutMs`)."""
    request_timeout_s: float = 30.0
    answer_timeout_s: float = 60.0
    """Time for which the driver asks a cluster that it has met, however few `attempts` are (`kafka.default.api.timeout.ms`)."""
    fetch_wait_ms: int = 500
    fetch_bytes_max: int = 4 * 1024 * 1024
    security: Security = field(default=NO_SECURITY, repr=False)


def read_reader_options(options: Mapping[str, str], *, is_stream: bool) -> ReaderOptions:
    """Parses the options of a job or of a stream. Raises `ReadOptionError`."""
    # Spark has lowered the names.
    given = {name.lower(): (_NAMES.get(name.lower(), name), text) for name, text in options.items()}
    own: dict[str, Any] = {}
    for key, (name, text) in given.items():
        if key in _PARSERS:
            target, parse = _PARSERS[key]
            own[target] = _parsed(name, text, parse)
        elif key in _REFUSED:
            raise ReadOptionError(f"option {name}: {_REFUSED[key]}")
        elif key not in _ELSEWHERE and not is_security_option(key):
            raise _unknown(name)
    _check_servers(own)
    own["topics"] = _only(given, _CHOICES, _CHOICE_PARSERS, "the topics to read")
    own["start"] = _only(given, _STARTS, _BOUND_PARSERS) or Bound(
        "startingOffsets", LATEST if is_stream else EARLIEST
    )
    own["end"] = _only(given, _ENDS, _BOUND_PARSERS) or Bound("endingOffsets", LATEST)
    own["security"] = _security(options)
    _check_kind(given, own, is_stream=is_stream)
    own["columns"] = _columns(own)
    return ReaderOptions(**own)


def schema_options(options: Mapping[str, str]) -> tuple[str, ...]:
    """Returns the names of the columns alone, whatever the other options are. Raises `ReadOptionError`."""
    own: dict[str, Any] = {}
    for name, text in options.items():
        if name.lower() in _SHAPING:
            target, parse = _PARSERS[name.lower()]
            own[target] = _parsed(name, text, parse)
    return _columns(own)


def _columns(own: Mapping[str, Any]) -> tuple[str, ...]:
    possible = (*COLUMNS, HEADERS) if own.get("includes_headers") else COLUMNS
    names: tuple[str, ...] = own.get("columns") or possible
    for name in names:
        if name not in possible:
            remedy = "; it needs includeHeaders=true" if name == HEADERS else ""
            raise ReadOptionError(
                f"option columns: there is no {name}, only {', '.join(possible)}{remedy}"
            )
    return names


def _check_servers(own: Mapping[str, Any]) -> None:
    if "bootstrap_servers" not in own:
        raise ReadOptionError(
            f"option {BOOTSTRAP_SERVERS} is missing: HOST:PORT[,HOST:PORT...] of the cluster"
        )


def _only(
    given: Mapping[str, tuple[str, str]],
    names: tuple[str, ...],
    parsers: Mapping[str, Callable[[str, str], Any]],
    needed_for: str | None = None,
) -> Any:
    """Parses the one option of `names` that is given; None if none is, unless one is needed."""
    found = [name for name in names if name.lower() in given]
    if len(found) > 1:
        raise ReadOptionError(f"options {' and '.join(found)}: give one of them")
    if not found:
        if needed_for is None:
            return None
        raise ReadOptionError(f"one of the options {', '.join(names)} has to name {needed_for}")
    (name,) = found
    text = given[name.lower()][1]
    return _parsed(name, text, lambda value: parsers[name](name, value))


def _check_kind(
    given: Mapping[str, tuple[str, str]], own: Mapping[str, Any], *, is_stream: bool
) -> None:
    """Refuses what makes sense only for a stream, or only for a job."""
    if is_stream:
        for name in _ENDS:
            if name.lower() in given:
                raise ReadOptionError(
                    f"option {name}: a stream has no end; read a job, by spark.read"
                )
        least, most = own.get("offsets_min"), own.get("offsets_max")
        if least is not None and most is not None and least > most:
            raise ReadOptionError(
                f"options minOffsetsPerTrigger and maxOffsetsPerTrigger: {least} is more than {most}"
            )
        return
    start, end = own["start"], own["end"]
    if start.uses(LATEST):
        raise ReadOptionError(f"option {start.option}: a job cannot start at latest (-1)")
    if end.uses(EARLIEST):
        raise ReadOptionError(f"option {end.option}: a job cannot end at earliest (-2)")
    unused = [name for name in _OF_STREAMS if name.lower() in given]
    if unused:
        logger.warning("%s: without effect in a job", ", ".join(unused))


def _security(options: Mapping[str, str]) -> Security:
    try:
        return security_in(options)
    except SecurityOptionError as error:
        raise ReadOptionError(f"options kafka.*: {error}") from error


def _parsed(name: str, text: str, parse: Callable[[str], Any]) -> Any:
    try:
        return parse(text)
    except (ValueError, KeyError) as error:
        raise ReadOptionError(f"option {name}: {text!r} is not possible: {error}") from error


def _unknown(name: str) -> ReadOptionError:
    near = difflib.get_close_matches(name.lower(), _NAMES, 1)
    hint = f"; did you mean {_NAMES[near[0]]}?" if near else ""
    return ReadOptionError(f"option {name}: the reader does not have it{hint}")


def _addresses(text: str) -> str:
    parse_addresses(text)
    return text


def _bool(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError("true or false is needed")
    return text.lower() == "true"


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise ValueError("a number above 0 is needed")
    return number


def _int32(text: str) -> int:
    number = _positive(text)
    if number > _INT32_MAX:
        raise ValueError(f"a number of at most {_INT32_MAX} is needed")
    return number


def _milliseconds(text: str) -> float:
    return _positive(text) / 1000


def _isolation(text: str) -> int:
    if text.lower() not in _ISOLATION:
        raise ValueError("read_uncommitted or read_committed is needed")
    return _ISOLATION[text.lower()]


def _is_late(text: str) -> bool:
    if text.lower() not in ("error", "latest"):
        raise ValueError("error or latest is needed")
    return text.lower() == "latest"


_UNITS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}


def _duration(text: str) -> float:
    """Reads `15m` as Spark does; a bare number is milliseconds."""
    number = text.strip().lower().rstrip("abcdefghijklmnopqrstuvwxyz")
    unit = text.strip().lower().removeprefix(number).strip() or "ms"
    if unit not in _UNITS:
        raise ValueError(f"a number with one of {', '.join(_UNITS)} is needed")
    return int(number) * _UNITS[unit]


def _column_names(text: str) -> tuple[str, ...]:
    names = tuple(dict.fromkeys(filter(None, (name.strip() for name in text.split(",")))))
    if not names:
        raise ValueError("names of columns are needed, with commas between them")
    return names


_PARSERS: Final[Mapping[str, tuple[str, Callable[[str], Any]]]] = {
    BOOTSTRAP_SERVERS: ("bootstrap_servers", _addresses),
    "startingoffsetsbytimestampstrategy": ("starts_late", _is_late),
    "failondataloss": ("fails_on_data_loss", _bool),
    "includeheaders": ("includes_headers", _bool),
    "columns": ("columns", _column_names),
    "maxoffsetspertrigger": ("offsets_max", _positive),
    "minoffsetspertrigger": ("offsets_min", _positive),
    "maxtriggerdelay": ("trigger_delay_s", _duration),
    "minpartitions": ("tasks_min", _positive),
    "maxrecordsperpartition": ("task_records_max", _positive),
    "fetchoffset.numretries": ("attempts", _positive),
    "fetchoffset.retryintervalms": ("retry_s", _milliseconds),
    "kafkaconsumer.polltimeoutms": ("patience_s", _milliseconds),
    "kafka.isolation.level": ("isolation", _isolation),
    "kafka.request.timeout.ms": ("request_timeout_s", _milliseconds),
    "kafka.default.api.timeout.ms": ("answer_timeout_s", _milliseconds),
    "kafka.fetch.max.wait.ms": ("fetch_wait_ms", _int32),
    "kafka.max.partition.fetch.bytes": ("fetch_bytes_max", _int32),
}
"""Lower-case names: the field of `ReaderOptions`, and the parser."""
_SHAPING: Final = frozenset({"includeheaders", "columns"})
_CHOICE_PARSERS: Final[Mapping[str, Callable[[str, str], Any]]] = {
    "subscribe": lambda _, text: parse_subscribe(text),
    "subscribePattern": lambda _, text: parse_pattern(text),
    "assign": lambda _, text: parse_assign(text),
}
_BOUND_PARSERS: Final[Mapping[str, Callable[[str, str], Any]]] = {
    "startingOffsets": parse_offsets_bound,
    "startingOffsetsByTimestamp": parse_times_bound,
    "startingTimestamp": parse_time_bound,
    "endingOffsets": parse_offsets_bound,
    "endingOffsetsByTimestamp": parse_times_bound,
    "endingTimestamp": parse_time_bound,
}
_POSITION: Final = "the reader's offsets are Spark's; use startingOffsets"
_AS_BYTES: Final = "keys and values are binary; convert them in the query, by CAST(value AS STRING)"
_REFUSED: Final = {
    "kafka.auto.offset.reset": _POSITION,
    "kafka.enable.auto.commit": _POSITION,
    "kafka.key.deserializer": _AS_BYTES,
    "kafka.value.deserializer": _AS_BYTES,
    "kafka.interceptor.classes": "there are no interceptors; change rows in the query",
    "topic": "the sink writes to it; a reader is given subscribe, subscribePattern or assign",
    "path": "there are no files; name topics by subscribe, subscribePattern or assign",
}
_WITHOUT_EFFECT: Final = frozenset(
    {
        # Spark only derives names of groups from them: it commits nothing.
        "groupidprefix",
        "kafka.group.id",
        *(
            f"kafka.{name}"
            for name in (
                *("allow.auto.create.topics", "check.crcs", "client.dns.lookup", "client.id"),
                *("client.rack", "connections.max.idle.ms"),
                *("enable.metrics.push", "exclude.internal.topics", "fetch.max.bytes"),
                *("fetch.min.bytes", "heartbeat.interval.ms", "max.poll.interval.ms"),
                *("max.poll.records", "metadata.max.age.ms", "metadata.recovery.strategy"),
                *("metrics.num.samples", "metrics.recording.level", "metrics.sample.window.ms"),
                *("receive.buffer.bytes", "reconnect.backoff.max.ms", "reconnect.backoff.ms"),
                *("retry.backoff.max.ms", "retry.backoff.ms", "send.buffer.bytes"),
                *("session.timeout.ms", "socket.connection.setup.timeout.max.ms"),
                "socket.connection.setup.timeout.ms",
            )
        ),
    }
)
"""Lower-case names of options that configurations share with other consumers."""
_ELSEWHERE: Final = frozenset(
    {*_WITHOUT_EFFECT, *(name.lower() for name in (*_CHOICES, *_STARTS, *_ENDS))}
)
_NAMES: Final = {
    name.lower(): name
    for name in (
        *(
            *_CHOICES,
            *_STARTS,
            *_ENDS,
            *_OF_STREAMS,
            BOOTSTRAP_SERVERS,
            "includeHeaders",
            "columns",
        ),
        *("startingOffsetsByTimestampStrategy", "failOnDataLoss", "minPartitions"),
        *("maxRecordsPerPartition", "fetchOffset.numRetries", "fetchOffset.retryIntervalMs"),
        *("kafkaConsumer.pollTimeoutMs", "kafka.isolation.level"),
    )
}
"""Names to suggest, by their lower-case form."""
