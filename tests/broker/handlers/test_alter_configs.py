"""AlterConfigs, over a real socket: a topic's whole configuration is replaced."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from echoless.broker.handlers.config_resource import ConfigResourceType
from echoless.protocol.errors import ErrorCode
from tests.support.in_process import Running
from tests.support.raw_client import RawConnection, create_topic, nested

TOPIC = ConfigResourceType.TOPIC


@pytest.fixture(autouse=True)
async def _topic(kafka: RawConnection) -> None:
    """A topic `t` with one override."""
    await create_topic(kafka, "t", 1, {"retention.ms": "5000"})


async def replace(
    kafka: RawConnection,
    configs: Sequence[tuple[str, str | None]],
    name: str = "t",
    resource_type: ConfigResourceType = TOPIC,
) -> Any:
    """The row of AlterConfigs for one topic, or another resource."""
    resource = nested("alter_configs", 2, "AlterConfigsResource")(
        resource_type=resource_type,
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


async def test_the_older_request_replaces_everything(
    kafka: RawConnection, running: Running
) -> None:
    """AlterConfigs: what it leaves out returns to the broker's value."""
    assert (await replace(kafka, [("segment.bytes", "1MiB")])).error_code == 0
    assert overrides(running) == {"segment.bytes": "1048576"}
    for configs, code in (
        ([("nonsense", "1")], ErrorCode.INVALID_CONFIG),
        (
            [("max.compaction.lag.ms", "1"), ("min.compaction.lag.ms", "2")],
            ErrorCode.INVALID_CONFIG,
        ),
        ([("segment.bytes", None)], ErrorCode.INVALID_REQUEST),
        ([("segment.bytes", "1MiB"), ("segment.bytes", "2MiB")], ErrorCode.INVALID_REQUEST),
    ):
        assert (await replace(kafka, configs)).error_code == code
    missing = await replace(kafka, [], name="missing")
    assert missing.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert overrides(running) == {"segment.bytes": "1048576"}


async def test_the_older_request_replaces_the_settings_of_a_broker(
    kafka: RawConnection, running: Running
) -> None:
    """Names that it leaves out return to what the broker was started with."""
    broker, config = ConfigResourceType.BROKER, running.broker.config
    for name in ("", "1"):
        for configs, numbers in (
            ([("num.partitions", "3"), ("log_retention_ms", "1h")], (3, 3_600_000)),
            ([("num.partitions", "4")], (4, 604_800_000)),
            ([], (1, 604_800_000)),
        ):
            assert (await replace(kafka, configs, name, broker)).error_code == 0
            assert (config.num_partitions, config.log_retention_ms) == numbers
    for configs, code in (
        ([("num.partitions", None)], ErrorCode.INVALID_REQUEST),
        ([("num.partitions", "1"), ("num_partitions", "2")], ErrorCode.INVALID_REQUEST),
        ([("broker.id", "2")], ErrorCode.INVALID_REQUEST),
        ([("nonsense", "2")], ErrorCode.INVALID_CONFIG),
        ([("num.partitions", "0")], ErrorCode.INVALID_REQUEST),
    ):
        row = await replace(kafka, configs, "", broker)
        assert (row.error_code, bool(row.error_message)) == (code, True)
    assert (await replace(kafka, [], "2", broker)).error_code == ErrorCode.INVALID_REQUEST
    assert config.num_partitions == 1
