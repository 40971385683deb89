"""UpdateFeatures, over a real socket, and what ApiVersions says of features."""

from __future__ import annotations

import datetime
from typing import Any

import pytest

from echoless.broker.config.feature_levels import FEATURE, LEVEL_MAX
from echoless.protocol.errors import ErrorCode
from tests.support.in_process import Running
from tests.support.raw_client import RawConnection, nested

_UPGRADE, _SAFE_DOWNGRADE = 1, 2


async def update(
    kafka: RawConnection, *updates: tuple[str, int], version: int = 1, dry_run: bool = False
) -> Any:
    """The whole response."""
    how = {"upgrade_type": _UPGRADE} if version else {"allow_downgrade": True}
    fields: dict[str, Any] = {"validate_only": dry_run} if version else {}
    row = nested("update_features", version, "FeatureUpdateKey")
    return await kafka.call(
        "update_features",
        version,
        timeout=datetime.timedelta(seconds=10),
        feature_updates=tuple(
            row(feature=name, max_version_level=level, **how) for name, level in updates
        ),
        **fields,
    )


@pytest.mark.parametrize("version", [0, 1])
async def test_a_level_is_kept_or_refused_with_its_reason(
    kafka: RawConnection, version: int
) -> None:
    """One that is in force changes nothing; a lower one and one that a broker does not know are refused."""
    answer = await update(kafka, (FEATURE, LEVEL_MAX), version=version)
    (row,) = answer.results
    assert (answer.error_code, row.error_code, row.feature) == (0, 0, FEATURE)
    for level, reason in ((0, "is not lowered"), (LEVEL_MAX + 1, "upgrade them first")):
        (row,) = (await update(kafka, (FEATURE, level), version=version)).results
        assert row.error_code.value == ErrorCode.INVALID_UPDATE_VERSION
        assert reason in row.error_message


async def test_other_features_are_refused_each_in_its_row(kafka: RawConnection) -> None:
    """Only one can be updated."""
    answer = await update(kafka, ("metadata.version", 3), (FEATURE, LEVEL_MAX))
    assert [row.error_code.value for row in answer.results] == [95, 0]


async def test_a_request_without_sense_is_refused_as_a_whole(kafka: RawConnection) -> None:
    """No features, too many, or one of them twice."""
    for updates in ((), [(FEATURE, 1)] * 2, [(str(n), 1) for n in range(101)]):
        answer = await update(kafka, *updates)
        assert (answer.error_code.value, answer.results) == (ErrorCode.INVALID_REQUEST, ())


async def test_a_level_is_raised_unless_it_is_a_dry_run(
    kafka: RawConnection, running: Running
) -> None:
    """As in a cluster that was upgraded; ApiVersions says which level is in force."""
    running.broker.features.level = 0
    described = await kafka.call(
        "api_versions", 4, client_software_name="t", client_software_version="1"
    )
    assert FEATURE not in {one.name for one in described.finalized_features}
    (row,) = (await update(kafka, (FEATURE, LEVEL_MAX), dry_run=True)).results
    assert (row.error_code, running.broker.features.level) == (0, 0)
    (row,) = (await update(kafka, (FEATURE, LEVEL_MAX))).results
    assert (row.error_code, running.broker.features.level) == (0, LEVEL_MAX)
    described = await kafka.call(
        "api_versions", 4, client_software_name="t", client_software_version="1"
    )
    assert {one.name: one.max_version_level for one in described.finalized_features} == {
        FEATURE: LEVEL_MAX,
        "group.version": 1,
        "transaction.version": 2,
    }
