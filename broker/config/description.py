"""Configuration entries, as DescribeConfigs answers them and the two AlterConfigs requests change them.

One entry per name: the value in force, its source, and its synonyms: the chain of names that were
considered, the deciding one first, as Kafka lists them. Pure; the handlers turn entries into response
fields.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from echoless.broker.config.kafka_names import FIXED, SAME_AS, of_addresses
from echoless.broker.config.names import Config, settings
from echoless.broker.config.setting import Setting
from echoless.broker.config.topic import TopicSetting, topic_settings, validated
from echoless.broker.config.values import Address, ConfigType, canonical
from echoless.protocol.errors import ErrorCode, KafkaError


class ConfigSource(enum.IntEnum):
    """The source of a value (Kafka's `DescribeConfigsResponse.ConfigSource` ids)."""

    TOPIC = 1
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


def describe_topic(config: Config, overrides: Mapping[str, str]) -> list[ConfigEntry]:
    """The topic-level names with the values in force, for a topic that sets `overrides`."""
    return [_topic_entry(config, overrides, setting) for setting in topic_settings().values()]


def describe_broker(config: Config, advertised: Mapping[str, Address]) -> list[ConfigEntry]:
    """The broker's names in Kafka's dotted spelling, and Kafka's for the same.

    None of them changes while it runs. `advertised`: the addresses in use, by listener.
    """
    own = settings()
    entries = [
        _entry(_broker_synonyms(config, one), one.kind.type, one.doc) for one in own.values()
    ]
    for name, same in SAME_AS.items():
        setting = own[same]
        synonyms = _broker_synonyms(config, setting)
        entry = _entry(synonyms, setting.kind.type, setting.doc)
        entries.append(entry._replace(name=name))
    entries += [_named_entry(name, value, ConfigSource.DEFAULT) for name, value in FIXED.items()]
    named = of_addresses(config, advertised)
    entries += [
        _named_entry(name, value, ConfigSource.STATIC_BROKER) for name, value in named.items()
    ]
    return entries


def _named_entry(name: str, value: str, source: ConfigSource) -> ConfigEntry:
    """An entry of a name that is no setting."""
    synonyms = [Synonym(name, value, source)]
    return _entry(synonyms, ConfigType.STRING, "as in Kafka; for tools that look for it")


def altered(overrides: Mapping[str, str], changes: Iterable[Alteration]) -> dict[str, str]:
    """The overrides of a topic after IncrementalAlterConfigs.

    Raises `KafkaError`: INVALID_CONFIG as `validated` does, INVALID_REQUEST if a name is changed
    twice.
    """
    result = dict(overrides)
    seen: set[str] = set()
    for change in changes:
        if change.name in seen:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST, f"{change.name} stands twice in the request"
            )
        seen.add(change.name)
        _alter(result, change)
    return result


def _alter(overrides: dict[str, str], change: Alteration) -> None:
    if change.operation is AlterOperation.DELETE:
        overrides.pop(change.name, None)
        return
    text = change.value
    if change.operation is not AlterOperation.SET:
        text = _altered_list(overrides, change)
    overrides |= validated({change.name: text})


def _altered_list(overrides: Mapping[str, str], change: Alteration) -> str:
    setting = topic_settings().get(change.name)
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
    config: Config, overrides: Mapping[str, str], setting: TopicSetting
) -> ConfigEntry:
    synonyms = []
    if setting.name in overrides:
        synonyms.append(Synonym(setting.name, overrides[setting.name], ConfigSource.TOPIC))
    if setting.broker_name is None:
        default = canonical(setting.default)
        synonyms.append(Synonym(setting.name, default, ConfigSource.DEFAULT))
    else:
        synonyms += _broker_synonyms(config, settings()[setting.broker_name])
    return _entry(synonyms, setting.kind.type, setting.doc, name=setting.name)


def _broker_synonyms(config: Config, setting: Setting) -> list[Synonym]:
    """The broker's own value if it differs from the default, then the default."""
    name = setting.name.replace("_", ".")
    value, default = canonical(getattr(config, setting.name)), canonical(setting.default)
    is_secret = setting.kind.is_secret
    synonyms = [Synonym(name, None if is_secret else default, ConfigSource.DEFAULT)]
    if value != default:
        shown = None if is_secret else value
        synonyms.insert(0, Synonym(name, shown, ConfigSource.STATIC_BROKER))
    return synonyms


def _entry(
    synonyms: list[Synonym], type_: ConfigType, doc: str, name: str | None = None
) -> ConfigEntry:
    """The entry decided by the first synonym; a topic's own names are never read-only."""
    deciding = synonyms[0]
    return ConfigEntry(
        name or deciding.name, deciding.value, deciding.source, name is None, synonyms, type_, doc
    )
