"""IncrementalAlterConfigs, over a real socket: single names, changed together or not at all."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from echoless.broker.config.security import SecurityConfig
from echoless.broker.handlers.config_resource import ConfigResourceType
from echoless.protocol.errors import ErrorCode
from tests.support.in_process import Running
from tests.support.raw_client import RawConnection, create_topic, nested

TOPIC, BROKER = ConfigResourceType.TOPIC, ConfigResourceType.BROKER
SET, DELETE, APPEND, SUBTRACT = range(4)
Change = tuple[str, int, str | None]


@pytest.fixture(autouse=True)
async def _topic(kafka: RawConnection) -> None:
    """A topic `t` with one override."""
    await create_topic(kafka, "t", 1, {"retention.ms": "5000"})


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


def overrides(running: Running) -> dict[str, str]:
    return dict(running.broker.registry.topics["t"].config)


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
    """Another broker, unknown kinds, topics that are not there, and a resource that is listed twice."""
    change = [("retention.ms", SET, "1")]
    rows = await alter(
        kafka,
        (BROKER, "2", change),
        (ConfigResourceType.GROUP, "g", change),
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
    assert "expected 1 or empty string, but received 2" in rows[0].error_message


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


async def test_no_client_changes_security(kafka: RawConnection, running: Running) -> None:
    """Neither of the broker nor of a topic: no login module, URL or file comes from a request (CVE-2023-25194)."""
    names = [one.replace("_", ".") for one in SecurityConfig.__dataclass_fields__]
    assert len(names) > 20
    before = running.broker.config
    for resource in ((BROKER, "1"), (BROKER, ""), (TOPIC, "t")):
        for name in (*names, "sasl.jaas.config", "authorizer", "super.users"):
            (row,) = await alter(kafka, (*resource, [(name, SET, "x")]))
            assert row.error_code != 0, name
    assert running.broker.config == before
    assert overrides(running) == {"retention.ms": "5000"}


@pytest.mark.parametrize("validate_only", [True, False])
async def test_the_youngest_that_is_compacted_is_not_older_than_the_oldest_that_is_not(
    kafka: RawConnection, running: Running, *, validate_only: bool
) -> None:
    """As in Kafka, with its words; values set before count, and equal ones are fine."""
    both = [("min.compaction.lag.ms", SET, "100"), ("max.compaction.lag.ms", SET, "100")]
    (row,) = await alter(kafka, (TOPIC, "t", both))
    assert row.error_code == ErrorCode.NONE
    before = overrides(running)
    (row,) = await alter(
        kafka,
        (TOPIC, "t", [("max.compaction.lag.ms", SET, "99")]),
        validate_only=validate_only,
    )
    assert (row.error_code, row.error_message) == (
        ErrorCode.INVALID_CONFIG,
        "conflict topic config setting min.compaction.lag.ms (100) > max.compaction.lag.ms (99)",
    )
    assert overrides(running) == before
