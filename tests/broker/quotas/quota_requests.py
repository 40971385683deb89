"""Requests about quotas, as tests send them."""

from __future__ import annotations

from typing import Any

from tests.support.raw_client import RawConnection, nested

DEFAULT = None
"""The name of the default entity."""


class Clock:
    """Stands still, in place of a broker's `Quotas.clock`, unless it is set."""

    now = 1000.0

    def __call__(self) -> float:
        return self.now


def entity(api: str, version: int = 1, **names: str | None) -> tuple[Any, ...]:
    """`user`, `client_id` and `ip` of an entity."""
    row = nested(api, version, "EntityData")
    return tuple(
        row(entity_type=kind.replace("_", "-"), entity_name=name) for kind, name in names.items()
    )


async def alter(
    kafka: RawConnection,
    values: dict[str, float | None],
    *,
    version: int = 1,
    validate_only: bool = False,
    **names: str | None,
) -> int:
    """Sets the quotas of one entity, removes those that are None, and returns the code."""
    api = "alter_client_quotas"
    op = nested(api, version, "OpData")
    entry = nested(api, version, "EntryData")(
        entity=entity(api, version, **names),
        ops=tuple(
            op(key=key, value=0.0 if value is None else value, remove=value is None)
            for key, value in values.items()
        ),
    )
    answer = await kafka.call(api, version, entries=(entry,), validate_only=validate_only)
    (row,) = answer.entries
    assert {one.entity_type.replace("-", "_"): one.entity_name for one in row.entity} == names
    return int(row.error_code)


def component(kind: str, match_type: int, match: str | None = None, *, version: int = 1) -> Any:
    """One component of a filter."""
    return nested("describe_client_quotas", version, "ComponentData")(
        entity_type=kind, match_type=match_type, match=match
    )


async def describe(
    kafka: RawConnection, *components: Any, strict: bool = False, version: int = 1
) -> tuple[int, dict[tuple[tuple[str, str | None], ...], dict[str, float]]]:
    """The code, and the quotas of each entity."""
    api = "describe_client_quotas"
    answer = await kafka.call(api, version, components=components, strict=strict)
    found = {
        tuple((one.entity_type, one.entity_name) for one in row.entity): {
            value.key: value.value for value in row.values
        }
        for row in answer.entries or ()
    }
    return int(answer.error_code), found
