"""Configuration entries, as DescribeConfigs answers them and the two AlterConfigs requests change them.

One entry per name: the value in force, its source, and its synonyms: the chain of names that were
considered, the deciding one first, as Kafka lists them. Pure; the handlers turn entries into response
fields.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple

from echoless.broker.config.dynamic import (
    DYNAMIC,
    DYNAMIC_BY_NAME,
    DynamicConfig,
    dotted,
    stored_name,
)
from echoless.broker.config.dynamic import validated as validated_settings
from echoless.broker.config.kafka_names import FIXED, SAME_AS, of_addresses
from echoless.broker.config.names import settings
from echoless.broker.config.setting import Setting
from echoless.broker.config.topic import TopicSetting, topic_settings, validated
from echoless.broker.config.values import Address, ConfigType, canonical
from echoless.protocol.errors import ErrorCode, KafkaError


class ConfigSource(enum.IntEnum):
    """The source of a value (Kafka's `DescribeConfigsResponse.ConfigSource` ids)."""

    TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5


class Synonym(NamedTuple):
    """One name that was considered on the way to a value."""

    name: str
    value: str | None
    source: ConfigSource


class ConfigEntry(NamedTuple):
    """One name of a topic or a broker. Values are text, as on the wire; None for a secret."""

    name: str
    value: str | None
    source: ConfigSource
    is_read_only: bool
    synonyms: list[Synonym]
    type: ConfigType
    doc: str

    @property
    def is_sensitive(self) -> bool:
        """Whether the value is withheld."""
        return self.type is ConfigType.PASSWORD

    @property
    def is_default(self) -> bool:
        """Whether the value is the default; before version 1 DescribeConfigs gave this, not the source."""
        return self.source is ConfigSource.DEFAULT


class AlterOperation(enum.IntEnum):
    """A change that IncrementalAlterConfigs makes to one name (Kafka's `AlterConfigOp.OpType` ids)."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class Alteration(NamedTuple):
    """One change to one name; `value` applies to everything but DELETE."""

    name: str
    operation: AlterOperation
    value: str | None


class AlterableNames(NamedTuple):
    """The names that a kind of resource may set."""

    known: Mapping[str, TopicSetting | Setting]
    validated: Callable[[Mapping[str, str | None]], dict[str, str]]
    """Values in stored form. Raises `KafkaError`."""


OF_TOPICS: Final = AlterableNames(topic_settings(), validated)
OF_BROKERS: Final = AlterableNames(DYNAMIC_BY_NAME, validated_settings)


def describe_topic(dynamic: DynamicConfig, overrides: Mapping[str, str]) -> list[ConfigEntry]:
    """The topic-level names with the values in force, for a topic that sets `overrides`."""
    return [_topic_entry(dynamic, overrides, setting) for setting in topic_settings().values()]


def describe_broker(dynamic: DynamicConfig, advertised: Mapping[str, Address]) -> list[ConfigEntry]:
    """The broker's names in Kafka's dotted spelling, and Kafka's for the same.

    `advertised`: the addresses in use, by listener.
    """
    entries = [_setting_entry(dynamic, one) for one in settings().values()]
    for name, same in SAME_AS.items():
        entries.append(_setting_entry(dynamic, settings()[same])._replace(name=name))
    entries += [_named_entry(name, value, ConfigSource.DEFAULT) for name, value in FIXED.items()]
    named = of_addresses(dynamic.config, advertised)
    entries += [
        _named_entry(name, value, ConfigSource.STATIC_BROKER) for name, value in named.items()
    ]
    return entries


def describe_all_brokers(dynamic: DynamicConfig) -> list[ConfigEntry]:
    """The settings that were changed for all brokers, and nothing else."""
    found = []
    for stored, value in dynamic.of_all.items():
        setting = DYNAMIC_BY_NAME[stored]
        for name in dict.fromkeys((dotted(setting.name), stored)):
            synonyms = [Synonym(name, value, ConfigSource.DYNAMIC_DEFAULT_BROKER)]
            found.append(_entry(synonyms, setting.kind.type, setting.doc, is_read_only=False))
    return found


def _setting_entry(dynamic: DynamicConfig, setting: Setting) -> ConfigEntry:
    return _entry(
        _broker_synonyms(dynamic, setting),
        setting.kind.type,
        setting.doc,
        name=dotted(setting.name),
        is_read_only=setting.name not in DYNAMIC,
    )


def _named_entry(name: str, value: str, source: ConfigSource) -> ConfigEntry:
    """An entry of a name that is no setting."""
    synonyms = [Synonym(name, value, source)]
    return _entry(synonyms, ConfigType.STRING, "as in Kafka; for tools that look for it")


def altered(
    overrides: Mapping[str, str],
    changes: Iterable[Alteration],
    names: AlterableNames = OF_TOPICS,
) -> dict[str, str]:
    """The values that a resource has set, after IncrementalAlterConfigs.

    Raises `KafkaError` as `names.validated` does, INVALID_CONFIG for a list that is none, INVALID_REQUEST if a name
    is changed twice.
    """
    result = dict(overrides)
    seen: set[str] = set()
    for change in changes:
        if change.name in seen:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST, f"{change.name} stands twice in the request"
            )
        seen.add(change.name)
        _alter(result, change, names)
    return result


def _alter(overrides: dict[str, str], change: Alteration, names: AlterableNames) -> None:
    if change.operation is AlterOperation.DELETE:
        overrides.pop(change.name, None)
        return
    text = change.value
    if change.operation is not AlterOperation.SET:
        text = _altered_list(overrides, change, names)
    overrides |= names.validated({change.name: text})


def _altered_list(overrides: Mapping[str, str], change: Alteration, names: AlterableNames) -> str:
    setting = names.known.get(change.name)
    if setting is None or setting.kind.type is not ConfigType.LIST:
        raise KafkaError(
            ErrorCode.INVALID_CONFIG, f"{change.name} is no list to append to or subtract from"
        )
    present = overrides.get(change.name, canonical(setting.default))
    items = [item for item in present.split(",") if item]
    changed = [item for item in (change.value or "").split(",") if item]
    kept = [item for item in items if item not in changed]
    return ",".join(kept + changed if change.operation is AlterOperation.APPEND else kept)


def _topic_entry(
    dynamic: DynamicConfig, overrides: Mapping[str, str], setting: TopicSetting
) -> ConfigEntry:
    synonyms = []
    if setting.name in overrides:
        synonyms.append(Synonym(setting.name, overrides[setting.name], ConfigSource.TOPIC))
    if setting.broker_name is None:
        default = canonical(setting.default)
        synonyms.append(Synonym(setting.name, default, ConfigSource.DEFAULT))
    else:
        synonyms += _broker_synonyms(dynamic, settings()[setting.broker_name])
    return _entry(synonyms, setting.kind.type, setting.doc, name=setting.name, is_read_only=False)


def _broker_synonyms(dynamic: DynamicConfig, setting: Setting) -> list[Synonym]:
    """Values set while the broker ran, for it alone and for all; the one it was started with, unless it is the default; the default."""
    name, stored = dotted(setting.name), stored_name(setting.name)
    default = canonical(setting.default)
    started_with = dynamic.started_with.get(setting.name, getattr(dynamic.config, setting.name))
    levels = (
        (dynamic.own.get(stored), ConfigSource.DYNAMIC_BROKER),
        (dynamic.of_all.get(stored), ConfigSource.DYNAMIC_DEFAULT_BROKER),
        (_unless(canonical(started_with), default), ConfigSource.STATIC_BROKER),
        (default, ConfigSource.DEFAULT),
    )
    is_secret = setting.kind.is_secret
    return [
        Synonym(name, None if is_secret else value, source)
        for value, source in levels
        if value is not None
    ]


def _unless(value: str, default: str) -> str | None:
    return None if value == default else value


def _entry(
    synonyms: list[Synonym],
    type_: ConfigType,
    doc: str,
    *,
    name: str | None = None,
    is_read_only: bool = True,
) -> ConfigEntry:
    """The entry decided by the first synonym."""
    deciding = synonyms[0]
    return ConfigEntry(
        name or deciding.name, deciding.value, deciding.source, is_read_only, synonyms, type_, doc
    )
