"""The entity of a quota as requests and responses name it: rows of a type and a name, null for the default.

For DescribeClientQuotas and AlterClientQuotas. Knows nothing of the tree.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final
from urllib.parse import unquote

from echoless.broker.metadata.config_nodes import DEFAULT_NAME, is_storable, sanitized
from echoless.broker.quotas.quota import Entity
from echoless.protocol.errors import ErrorCode, KafkaError

FIELDS: Final = {"user": "user", "client-id": "client_id", "ip": "ip"}
"""The part of an `Entity` for each type."""


def entity_of(rows: Iterable[Any]) -> Entity:
    """The entity that these rows name together. Raises `KafkaError` INVALID_REQUEST."""
    parts: dict[str, str] = {}
    for row in rows:
        field, name = FIELDS.get(row.entity_type), row.entity_name
        if field is None:
            raise invalid(f"Unhandled client quota entity type: {row.entity_type!r}")
        if field in parts:
            raise invalid(f"The entity type {row.entity_type} is there twice")
        if name is not None and not is_storable(name):
            raise invalid(f"A {row.entity_type} cannot be called {name!r}")
        parts[field] = DEFAULT_NAME if name is None else sanitized(name)
    if not parts:
        raise invalid("Invalid empty client quota entity")
    if "ip" in parts and len(parts) > 1:
        raise invalid("An ip has no quotas together with a user or client-id")
    return Entity(**parts)


def rows_of(entity: Entity) -> list[dict[str, str | None]]:
    """The same for a response."""
    return [
        {
            "entity_type": kind,
            "entity_name": None if name == DEFAULT_NAME else unquote(name),
        }
        for kind, name in parts_of(entity)
    ]


def parts_of(entity: Entity) -> list[tuple[str, str]]:
    """The type and name of each part."""
    parts = [(kind, getattr(entity, field)) for kind, field in FIELDS.items()]
    return [(kind, name) for kind, name in parts if name is not None]


def invalid(message: str) -> KafkaError:
    """The error of what no one can ask for."""
    return KafkaError(ErrorCode.INVALID_REQUEST, message)
