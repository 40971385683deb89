"""Which quota applies to a client: Kafka's precedence."""

from __future__ import annotations

import pytest

from echoless.broker.metadata.config_nodes import DEFAULT_NAME
from echoless.broker.quotas.quota import Entity, Limit, QuotaKey, address_limit_of, limit_of

PRODUCED = QuotaKey.PRODUCER_BYTE_RATE
BY_PRECEDENCE = (
    (Entity("u", "c"), "u", "c"),
    (Entity("u", DEFAULT_NAME), "u", "c"),
    (Entity("u"), "u", ""),
    (Entity(DEFAULT_NAME, "c"), "u", "c"),
    (Entity(DEFAULT_NAME, DEFAULT_NAME), "u", "c"),
    (Entity(DEFAULT_NAME), "u", ""),
    (Entity(client_id="c"), "", "c"),
    (Entity(client_id=DEFAULT_NAME), "", "c"),
)


@pytest.mark.parametrize("first", range(len(BY_PRECEDENCE)))
def test_the_most_specific_wins(first: int) -> None:
    """It is chosen among those that are set; its use is counted for the user and client that it is about."""
    limits = {
        entity: {PRODUCED: float(number)}
        for number, (entity, _, _) in enumerate(BY_PRECEDENCE)
        if number >= first
    }
    entity, user, client_id = BY_PRECEDENCE[first]
    is_of_any_client = entity.client_id == DEFAULT_NAME
    expected = Limit(float(first), user, client_id, is_of_any_client)
    assert limit_of(limits, PRODUCED, "u", "c") == expected


def test_another_kind_of_quota_does_not_hide_it() -> None:
    """Each kind is looked up by itself."""
    limits = {
        Entity("u", "c"): {QuotaKey.CONSUMER_BYTE_RATE: 1.0},
        Entity("u"): {PRODUCED: 2.0},
    }
    assert limit_of(limits, PRODUCED, "u", "c") == Limit(2.0, "u", "")
    assert limit_of(limits, QuotaKey.REQUEST_PERCENTAGE, "u", "c") is None


def test_another_user_and_client_have_none() -> None:
    """Names are compared whole."""
    limits = {entity: {PRODUCED: 1.0} for entity in (Entity("u", "c"), Entity("u"))}
    assert limit_of(limits, PRODUCED, "v", "c") is None


def test_addresses() -> None:
    """An address's own quota, else the default."""
    key = QuotaKey.CONNECTION_CREATION_RATE
    limits = {Entity(ip="127.0.0.1"): {key: 5.0}, Entity(ip=DEFAULT_NAME): {key: 7.0}}
    assert address_limit_of(limits, "127.0.0.1") == 5.0
    assert address_limit_of(limits, "127.0.0.2") == 7.0
    assert address_limit_of({}, "127.0.0.1") is None
