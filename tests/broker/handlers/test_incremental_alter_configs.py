"""DescribeConfigs, AlterConfigs and IncrementalAlterConfigs, over a real socket."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from broker.handlers.config_resource import ResourceType
from protocol.errors import ErrorCode
from tests.support.in_process import Running
from tests.support.raw_client import RawConnection, create_topic, nested

TOPIC, BROKER = ResourceType.TOPIC, ResourceType.BROKER
SET, DELETE, APPEND, SUBTRACT = range(4)
Change = tuple[str, int, str | None]


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


async def alter(
    kafka: RawConnection,
    *resources: tuple[int, str, Sequence[Change]],
    validate_only: bool = False,
) -> list[Any]:
    """Rows of IncrementalAlterConfigs."""
    api = "incremental_alter_configs"
    rows = tuple(
        nested(api, 1, "AlterConfigsResource")(
            resource_type=resource_type,
            resource_name=name,
            configs=tuple(
                nested(api, 1, "AlterableConfig")(name=key, config_operation=operation, value=value)
                for key, operation, value in changes
            ),
        )
        for resource_type, name, changes in resources
    )
    response = await kafka.call(api, 1, resources=rows, validate_only=validate_only)
    return list(response.responses)


async def replace(
    kafka: RawConnection, configs: Sequence[tuple[str, str | None]], name: str = "t"
) -> Any:
    """The row of AlterConfigs for one topic."""
    resource = nested("alter_configs", 2, "AlterConfigsResource")(
        resource_type=TOPIC,
        resource_name=name,
        configs=tuple(
            nested("alter_configs", 2, "AlterableConfig")(name=key, value=value)
            for key, value in configs
        ),
    )
    response = await kafka.call("alter_configs", 2, resources=(resource,), validate_only=False)
    return response.responses[0]


def overrides(running: Running) -> dict[str, str]:
    return dict(running.broker.registry.topics["t"].config)


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
    """Everything about this broker is read-only; another broker's configuration is unknown here."""
    row = await describe(kafka, BROKER, "1")
    configs = {config.name: config for config in row.configs}
    assert (configs["broker.id"].value, configs["broker.id"].read_only) == ("1", True)
    assert all(config.read_only for config in row.configs)
    dynamic_defaults = await describe(kafka, BROKER, "")
    assert (dynamic_defaults.error_code, dynamic_defaults.configs) == (0, ())
    other = await describe(kafka, BROKER, "2")
    assert other.error_code == ErrorCode.INVALID_REQUEST
    assert "expected 1" in other.error_message


async def test_what_cannot_be_described(kafka: RawConnection) -> None:
    """Topics that do not exist or cannot, and kinds of resources that are not served."""
    for resource_type, name, code in (
        (TOPIC, "missing", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (TOPIC, "bad name", ErrorCode.INVALID_TOPIC_EXCEPTION),
        (ResourceType.BROKER_LOGGER, "1", ErrorCode.INVALID_REQUEST),
        (99, "x", ErrorCode.INVALID_REQUEST),
    ):
        row = await describe(kafka, resource_type, name)
        assert (row.error_code, row.configs) == (code, ())
        assert row.error_message


async def test_names_are_set_and_deleted_together(kafka: RawConnection, running: Running) -> None:
    """The changes of a topic are in force when they are answered."""
    changes = [("segment.bytes", SET, "1MiB"), ("retention.ms", DELETE, None)]
    (row,) = await alter(kafka, (TOPIC, "t", changes))
    assert (row.error_code, row.resource_type, row.resource_name) == (0, TOPIC, "t")
    assert overrides(running) == {"segment.bytes": "1048576"}
    log = running.broker.partitions["t", 0].log
    assert (log.config.segment_bytes, log.config.retention_ms) == (1048576, 604800000)


async def test_an_alteration_is_made_whole_or_not_at_all(
    kafka: RawConnection, running: Running
) -> None:
    """One wrong name or value leaves all names as they were."""
    for changes, code in (
        ([("segment.bytes", SET, "1MiB"), ("nonsense", SET, "1")], ErrorCode.INVALID_CONFIG),
        ([("segment.bytes", SET, "few")], ErrorCode.INVALID_CONFIG),
        ([("retention.ms", APPEND, "1")], ErrorCode.INVALID_CONFIG),
        ([("retention.ms", SUBTRACT, "1")], ErrorCode.INVALID_CONFIG),
        ([("segment.bytes", SET, None)], ErrorCode.INVALID_REQUEST),
        ([("segment.bytes", 9, "1")], ErrorCode.INVALID_REQUEST),
        (
            [("segment.bytes", SET, "1MiB"), ("segment.bytes", DELETE, None)],
            ErrorCode.INVALID_REQUEST,
        ),
    ):
        (row,) = await alter(kafka, (TOPIC, "t", changes))
        assert row.error_code == code
        assert row.error_message
    assert overrides(running) == {"retention.ms": "5000"}


async def test_resources_that_cannot_be_altered(kafka: RawConnection) -> None:
    """Brokers, unknown kinds, topics that are not there, and a resource that is listed twice."""
    change = [("retention.ms", SET, "1")]
    rows = await alter(
        kafka,
        (BROKER, "1", change),
        (ResourceType.GROUP, "g", change),
        (TOPIC, "missing", change),
        (TOPIC, "t", change),
        (TOPIC, "t", change),
    )
    assert [row.error_code for row in rows] == [
        ErrorCode.INVALID_REQUEST,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.INVALID_REQUEST,
    ]
    assert "does not change while it runs" in rows[0].error_message


async def test_limits_of_replication_can_be_taken_back(kafka: RawConnection) -> None:
    """Deleting them succeeds, as there are none: Kafka's tool for reassignments does it each time."""
    rates = [("leader.replication.throttled.rate", DELETE, None)]
    replicas = [("follower.replication.throttled.replicas", DELETE, None)]
    rows = await alter(kafka, (BROKER, "1", rates), (TOPIC, "t", replicas))
    assert [row.error_code for row in rows] == [ErrorCode.NONE, ErrorCode.NONE]


async def test_validating_alters_nothing(kafka: RawConnection, running: Running) -> None:
    """validate_only judges the changes by what is there, and leaves it."""
    (row,) = await alter(kafka, (TOPIC, "t", [("retention.ms", SET, "1")]), validate_only=True)
    assert row.error_code == 0
    (wrong,) = await alter(kafka, (TOPIC, "t", [("retention.ms", SET, "x")]), validate_only=True)
    assert wrong.error_code == ErrorCode.INVALID_CONFIG
    assert overrides(running) == {"retention.ms": "5000"}


async def test_the_older_request_replaces_everything(
    kafka: RawConnection, running: Running
) -> None:
    """AlterConfigs: what it leaves out returns to the broker's value."""
    assert (await replace(kafka, [("segment.bytes", "1MiB")])).error_code == 0
    assert overrides(running) == {"segment.bytes": "1048576"}
    for configs, code in (
        ([("nonsense", "1")], ErrorCode.INVALID_CONFIG),
        ([("segment.bytes", None)], ErrorCode.INVALID_REQUEST),
        ([("segment.bytes", "1MiB"), ("segment.bytes", "2MiB")], ErrorCode.INVALID_REQUEST),
    ):
        assert (await replace(kafka, configs)).error_code == code
    missing = await replace(kafka, [], name="missing")
    assert missing.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert overrides(running) == {"segment.bytes": "1048576"}
