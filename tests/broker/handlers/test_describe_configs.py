"""DescribeConfigs, over a real socket: values, their sources, and resources that are refused."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from echoless.broker.handlers.config_resource import ConfigResourceType
from echoless.protocol.errors import ErrorCode
from tests.support.in_process import Running
from tests.support.raw_client import RawConnection, create_topic, nested

TOPIC, BROKER = ConfigResourceType.TOPIC, ConfigResourceType.BROKER


@pytest.fixture(autouse=True)
async def _topic(kafka: RawConnection) -> None:
    """A topic `t` with one override."""
    await create_topic(kafka, "t", 1, {"retention.ms": "5000"})


async def describe(
    kafka: RawConnection,
    resource_type: int,
    name: str,
    keys: Sequence[str] | None = None,
    **options: bool,
) -> Any:
    """The row of one resource."""
    resource = nested("describe_configs", 4, "DescribeConfigsResource")(
        resource_type=resource_type,
        resource_name=name,
        configuration_keys=None if keys is None else tuple(keys),
    )
    response = await kafka.call("describe_configs", 4, resources=(resource,), **options)
    return response.results[0]


async def test_a_topic_is_described_with_its_sources(kafka: RawConnection) -> None:
    """Every name with its value, where that comes from, its type, and the chain of synonyms."""
    row = await describe(kafka, TOPIC, "t", include_synonyms=True, include_documentation=True)
    configs = {config.name: config for config in row.configs}
    retention = configs["retention.ms"]
    assert (retention.value, retention.config_source, retention.config_type) == ("5000", 1, 5)
    assert [(one.name, one.value, one.source) for one in retention.synonyms] == [
        ("retention.ms", "5000", 1),
        ("log.retention.ms", "604800000", 5),
    ]
    assert not retention.read_only
    assert retention.documentation


async def test_synonyms_and_documentation_only_where_they_are_asked_for(
    kafka: RawConnection,
) -> None:
    """Both are left out otherwise."""
    row = await describe(kafka, TOPIC, "t", ["retention.ms"])
    (config,) = row.configs
    assert (config.name, config.synonyms, config.documentation) == ("retention.ms", (), None)


async def test_names_that_do_not_exist_are_left_out(kafka: RawConnection) -> None:
    """A list of names restricts the answer; an empty one means all, as with Kafka."""
    row = await describe(kafka, TOPIC, "t", ["nonsense", "segment.bytes"])
    assert [config.name for config in row.configs] == ["segment.bytes"]
    everything = await describe(kafka, TOPIC, "t", [])
    assert len(everything.configs) > 10


async def test_the_broker_is_described_by_its_id(kafka: RawConnection) -> None:
    """Read-only but for what can change while it runs; another broker's configuration is unknown here."""
    row = await describe(kafka, BROKER, "1")
    configs = {config.name: config for config in row.configs}
    assert (configs["broker.id"].value, configs["broker.id"].read_only) == ("1", True)
    assert not configs["log.retention.ms"].read_only
    dynamic_defaults = await describe(kafka, BROKER, "")
    assert (dynamic_defaults.error_code, dynamic_defaults.configs) == (0, ())
    other = await describe(kafka, BROKER, "2")
    assert other.error_code == ErrorCode.INVALID_REQUEST
    assert "expected 1" in other.error_message


async def test_the_broker_tells_its_addresses(kafka: RawConnection, running: Running) -> None:
    """With the ports in use, though its configuration has port 0."""
    row = await describe(kafka, BROKER, "1", ["advertised.listeners"])
    told = row.configs[0].value.split(",")
    assert told == [
        f"PLAINTEXT://{running.kafka_address}",
        f"NATIVE://{running.native_address}",
    ]


async def test_what_cannot_be_described(kafka: RawConnection) -> None:
    """Topics that do not exist or cannot, and kinds of resources that are not served."""
    for resource_type, name, code in (
        (TOPIC, "missing", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (TOPIC, "bad name", ErrorCode.INVALID_TOPIC_EXCEPTION),
        (ConfigResourceType.BROKER_LOGGER, "1", ErrorCode.INVALID_REQUEST),
        (99, "x", ErrorCode.INVALID_REQUEST),
    ):
        row = await describe(kafka, resource_type, name)
        assert (row.error_code, row.configs) == (code, ())
        assert row.error_message
