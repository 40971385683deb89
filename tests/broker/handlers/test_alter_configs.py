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
