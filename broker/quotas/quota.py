"""Quotas as they are set: for whom, and how much. Kafka 3.9's names and precedence.

Names are those of nodes (`sanitized` in `broker/metadata/config_nodes.py`), so that `<default>` is never a user's own. Pure.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from echoless.broker.metadata.config_nodes import DEFAULT_NAME


class QuotaKey(enum.StrEnum):
    """The things that are limited."""

    PRODUCER_BYTE_RATE = "producer_byte_rate"
    CONSUMER_BYTE_RATE = "consumer_byte_rate"
    REQUEST_PERCENTAGE = "request_percentage"
    CONTROLLER_MUTATION_RATE = "controller_mutation_rate"
    PRODUCER_IDS_RATE = "producer_ids_rate"
    """KIP-936's; Kafka leaves it alone."""
    CONNECTION_CREATION_RATE = "connection_creation_rate"


WHOLE_NUMBERS: Final = frozenset(
    {
        QuotaKey.PRODUCER_BYTE_RATE,
        QuotaKey.CONSUMER_BYTE_RATE,
        QuotaKey.CONNECTION_CREATION_RATE,
    }
)
OF_ADDRESSES: Final = frozenset({QuotaKey.CONNECTION_CREATION_RATE})
"""The quotas of addresses; all others are of users and clients."""


class Entity(NamedTuple):
    """A holder of quotas: a user, a client id, both, or an address. None: not part of it."""

    user: str | None = None
    client_id: str | None = None
    ip: str | None = None


class Limit(NamedTuple):
    """A quota that applies to a client, and whose use is counted together: that of this user and client id."""

    value: float
    user: str
    """Empty if the quota is of the client id alone."""
    client_id: str
    """Empty if the quota is of the user alone."""
    is_of_any_client: bool = False
    """Whether it is of each client id that has none of its own: clients choose how many there are."""


Limits = Mapping[Entity, Mapping[QuotaKey, float]]


def limit_of(limits: Limits, key: QuotaKey, user: str, client_id: str) -> Limit | None:
    """The most specific quota for this client; None: it has none."""
    for entity in _candidates(user, client_id):
        value = limits.get(entity, {}).get(key)
        if value is not None:
            of_user, of_client = entity.user is not None, entity.client_id is not None
            return Limit(
                value,
                user if of_user else "",
                client_id if of_client else "",
                entity.client_id == DEFAULT_NAME,
            )
    return None


def address_limit_of(limits: Limits, ip: str) -> float | None:
    """The connections per second that the address may make; None: any number."""
    for name in (ip, DEFAULT_NAME):
        value = limits.get(Entity(ip=name), {}).get(QuotaKey.CONNECTION_CREATION_RATE)
        if value is not None:
            return value
    return None


def _candidates(user: str, client_id: str) -> Iterator[Entity]:
    for name in (user, DEFAULT_NAME):
        yield Entity(name, client_id)
        yield Entity(name, DEFAULT_NAME)
        yield Entity(name)
    yield Entity(client_id=client_id)
    yield Entity(client_id=DEFAULT_NAME)
