"""The settings that can change while a broker runs, and the values that were given to them (KIP-226).

A change is stored in the coordination tree, for one broker or for all (`broker/metadata/broker_settings.py`). The value
in force is the broker's own, else the one for all brokers, else what the broker was started with.

`DYNAMIC` names the settings that are read from `Config` at each use, or whose users listen for changes. All others
are read once, at the start, and stay refused. Pure, but for `DynamicConfig.apply`, which changes a `Config`.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, Final, NamedTuple

from echoless.broker.config.contradictions import contradiction
from echoless.broker.config.kafka_names import FIXED, OF_ADDRESSES, SAME_AS
from echoless.broker.config.names import Config, settings
from echoless.broker.config.setting import Setting
from echoless.broker.config.topic import topic_settings
from echoless.broker.config.values import canonical
from echoless.broker.limited_log import LimitedLog
from echoless.protocol.errors import ErrorCode, KafkaError

limited: Final = LimitedLog(logging.getLogger(__name__))

OF_LOGS: Final = frozenset(
    {
        *(one.broker_name for one in topic_settings().values() if one.broker_name is not None),
        "forgotten_producers_per_partition_max",
        "producer_id_expiration_ms",
        "producers_per_partition_max",
        "unknown_producer_id",
    }
)
"""Settings that partitions and their logs hold a copy of, which a change has to reach."""
_OTHERS: Final = frozenset(
    {
        "auto_create_topics_enable",
        "connection_creation_rate_max",
        "connections_max",
        "connections_max_idle_ms",
        "connections_max_per_ip",
        "connections_max_per_ip_overrides",
        "connections_max_unauthenticated_per_ip",
        "default_replication_factor",
        "log_cleaner_backoff_ms",
        "log_cleaner_dedupe_buffer_size",
        "log_cleaner_io_max_bytes_per_second",
        "log_level",
        "num_partitions",
    }
)
DYNAMIC: Final = OF_LOGS | _OTHERS
"""The names in `Config` of the settings that can change while a broker runs."""
_KAFKA_NAMES: Final = {ours: kafkas for kafkas, ours in SAME_AS.items()}
_REMEDY: Final = (
    "read at the start; restart the broker with another value (--set, the environment or its file)"
)


def dotted(setting: str) -> str:
    """The name of a setting as clients write it."""
    return setting.replace("_", ".")


def stored_name(setting: str) -> str:
    """The name under which a value is stored: Kafka's where it has another one, else ours with dots."""
    return _KAFKA_NAMES.get(setting, dotted(setting))


DYNAMIC_BY_NAME: Final[Mapping[str, Setting]] = {
    stored_name(name): one for name, one in settings().items() if name in DYNAMIC
}
"""The same, with their metadata, by the name that is stored."""


def known_as(name: str) -> str:
    """The stored name of what a client calls so, whether there is such a setting or not."""
    return stored_name(SAME_AS.get(name, name.replace(".", "_")))


def named(name: str) -> str:
    """The stored name of a setting that can change, whichever of its names a client uses.

    Raises `KafkaError`: INVALID_REQUEST for one that is read at the start, INVALID_CONFIG for one that does not exist.
    """
    ours = SAME_AS.get(name, name.replace(".", "_"))
    if ours in DYNAMIC:
        return known_as(name)
    if ours in settings() or name in FIXED or name in OF_ADDRESSES:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"Cannot update these configs dynamically: {name} is {_REMEDY}",
        )
    raise KafkaError(
        ErrorCode.INVALID_CONFIG,
        f"Unknown broker config name: {name}; DescribeConfigs of a broker lists those that exist",
    )


def validated(values: Mapping[str, str | None]) -> dict[str, str]:
    """Values of stored names, in stored form: plain numbers, no units.

    Raises `KafkaError` INVALID_REQUEST, as Kafka for brokers; for topics it is INVALID_CONFIG.
    """
    found = {}
    for name, text in values.items():
        if text is None:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Null value not supported for: {name}")
        try:
            found[name] = canonical(DYNAMIC_BY_NAME[name].kind.read(text))
        except ValueError as error:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"{name} {error}") from error
    return found


class DynamicConfig:
    """The configuration of a running broker: what it was started with, and what was set since."""

    def __init__(self, config: Config) -> None:
        self.config = config
        """The values in force; changed by `apply` alone."""
        self.started_with: Final = {name: getattr(config, name) for name in DYNAMIC}
        self.of_all: Mapping[str, str] = {}
        """Values for all brokers, by stored name, as far as this broker can apply them."""
        self.own: Mapping[str, str] = {}
        """Values for this broker alone."""

    def check(self, of_all: Mapping[str, str], own: Mapping[str, str]) -> None:
        """Raises `KafkaError` INVALID_REQUEST if the values contradict each other or what the broker was started with."""
        values = self._in_force(_readable(of_all).values, _readable(own).values)
        found = contradiction(replace(self.config, **values))
        if found is not None:
            raise KafkaError(ErrorCode.INVALID_REQUEST, found.problem)

    def apply(self, of_all: Mapping[str, str], own: Mapping[str, str]) -> frozenset[str]:
        """Brings what is stored into force; returns the names in `Config` whose values changed.

        What this broker cannot apply is left out, and logged.
        """
        read_of_all, read_own = _readable(of_all), _readable(own)
        for name, problem in {**read_of_all.problems, **read_own.problems}.items():
            _warn(name, problem)
        of_all, own = read_of_all.values, read_own.values
        found = contradiction(replace(self.config, **self._in_force(of_all, own)))
        if found is not None:
            _warn(found.problem.partition(":")[0], found.problem)
            left_out = {stored_name(name) for name in found.names}
            of_all, own = _without(of_all, left_out), _without(own, left_out)
        self.of_all, self.own = of_all, own
        values = self._in_force(of_all, own)
        changed = {
            name: value for name, value in values.items() if value != getattr(self.config, name)
        }
        self.config.change(changed)
        return frozenset(changed)

    def _in_force(self, of_all: Mapping[str, str], own: Mapping[str, str]) -> dict[str, Any]:
        values = dict(self.started_with)
        for name, text in {**of_all, **own}.items():
            setting = DYNAMIC_BY_NAME[name]
            values[setting.name] = setting.kind.read(text)
        return values


class _Readable(NamedTuple):
    """The values of a node that this broker can apply; why not, for the others, by the name that is stored."""

    values: dict[str, str]
    problems: dict[str, str]


def _readable(stored: Mapping[str, str]) -> _Readable:
    """Another release, or Apache Kafka, may have written the node."""
    found = _Readable({}, {})
    for name, text in stored.items():
        try:
            found.values.update(validated({named(name): text}))
        except KafkaError as error:
            found.problems[name] = error.message
    return found


def _without(values: Mapping[str, str], names: Iterable[str]) -> dict[str, str]:
    return {name: text for name, text in values.items() if name not in names}


def _warn(name: str, problem: str) -> None:
    message = "a setting that is stored in the coordination tree has no effect on this broker: %s"
    limited.log(logging.WARNING, name, message, problem)
