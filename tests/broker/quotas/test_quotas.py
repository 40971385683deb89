"""The measures of clients: how many there are in memory, and that no use is forgotten while it counts."""

from __future__ import annotations

import pytest

from echoless.broker.metadata.config_nodes import DEFAULT_NAME
from echoless.broker.metrics import Metrics
from echoless.broker.network.request import Peer
from echoless.broker.quotas import measures as measures_module
from echoless.broker.quotas import quotas as quotas_module
from echoless.broker.quotas.quota import Entity, QuotaKey
from echoless.broker.quotas.quotas import Quotas
from tests.broker.quotas.quota_requests import Clock

MAX = 10
NEW_IDS = 6
"""Client ids that come between two changes of quotas: fewer than are remembered."""
MINUTE_S = 60
PRODUCED = QuotaKey.PRODUCER_BYTE_RATE
OF_ALL_KINDS = {
    PRODUCED: 100.0,
    QuotaKey.CONSUMER_BYTE_RATE: 100.0,
    QuotaKey.CONTROLLER_MUTATION_RATE: 1.0,
    QuotaKey.PRODUCER_IDS_RATE: 1.0,
}
ANY_CLIENT = {Entity(client_id=DEFAULT_NAME): OF_ALL_KINDS}
TOO_MUCH = 10_000


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """Few measures are remembered, and every new one has some others looked at."""
    monkeypatch.setattr(quotas_module, "METERS_MAX", MAX)
    monkeypatch.setattr(measures_module, "MEASURES_MAX", 2 * MAX)
    monkeypatch.setattr(measures_module, "CLIENTS_PER_SWEEP", 1)
    monkeypatch.setattr(measures_module, "LOOKED_AT", 4)
    return Clock()


def peer(host: str, principal: str = "User:ANONYMOUS") -> Peer:
    return Peer(1, f"{host}:1", principal=principal)


def use_all(quotas: Quotas, client: Peer, client_id: str) -> int:
    """Uses far too much of everything; returns the pause."""
    meters = quotas.meters(client, client_id)
    assert meters.mutations is not None
    meters.mutations.take(TOO_MUCH, quotas.clock())
    quotas.count_new_id(client, client_id)
    return quotas.used(client, meters, TOO_MUCH, None)


def test_changes_of_quotas_leave_no_measures_of_old_clients(clock: Clock) -> None:
    """However many clients come and go between changes, a bounded number of measures is kept."""
    quotas, client = Quotas(Metrics(), clock), peer("127.0.0.1")
    for change in range(20):
        quotas._set(
            {
                Entity("ANONYMOUS", f"{change}-{number}"): {
                    PRODUCED: 1.0,
                    QuotaKey.CONTROLLER_MUTATION_RATE: 1.0,
                }
                for number in range(NEW_IDS)
            }
        )
        for number in range(NEW_IDS):
            assert quotas.meters(client, f"{change}-{number}").produced is not None
        assert len(quotas._rates) <= 2 * NEW_IDS
        assert len(quotas._buckets) <= 2 * NEW_IDS


@pytest.mark.parametrize("stranger", ["127.0.0.1", "127.0.0.2"])
def test_client_ids_by_the_thousand_make_nobodys_use_forgotten(clock: Clock, stranger: str) -> None:
    """Whoever has used too much pauses after any number of clients, of its own address or another, as before."""
    quotas = Quotas(Metrics(), clock)
    quotas._set(ANY_CLIENT)
    victim = peer("127.0.0.1")
    pause_ms = use_all(quotas, victim, "busy")
    for number in range(50 * MAX):
        use_all(quotas, peer(stranger), f"id-{number}")
    meters = quotas.meters(victim, "busy")
    assert meters.produced is not None
    assert meters.produced.throttle_ms(clock()) == pause_ms > 0
    assert meters.mutations is not None
    assert meters.mutations.throttle_ms(clock()) > 0
    assert meters.new_ids is not None


def test_a_sharer_with_many_client_ids_has_their_use_counted_together(clock: Clock) -> None:
    """The ids beyond its share are one client; those of others have measures of their own."""
    quotas = Quotas(Metrics(), clock)
    quotas._set(ANY_CLIENT)
    many = peer("127.0.0.2")
    for number in range(50 * MAX):
        use_all(quotas, many, f"id-{number}")
    assert quotas.meters(many, "fresh").produced is quotas.meters(many, "other").produced
    assert quotas.used(many, quotas.meters(many, "fresh"), 0, None) > 0
    for other in (peer("127.0.0.3"), peer("127.0.0.2", "User:alice")):
        meters = quotas.meters(other, "quiet")
        assert quotas.used(other, meters, 0, None) == 0
        assert meters.produced is not quotas.meters(other, "another").produced


def test_addresses_of_one_ipv6_network_share(clock: Clock) -> None:
    """A site can have as many addresses as it likes."""
    quotas = Quotas(Metrics(), clock)
    quotas._set(ANY_CLIENT)
    for number in range(50 * MAX):
        use_all(quotas, peer(f"2001:db8::{number:x}"), f"id-{number}")
    assert len(quotas._rates) <= 2 * MAX + 2
    assert (
        quotas.used(peer("2001:db8:0:1::1"), quotas.meters(peer("2001:db8:0:1::1"), "a"), 0, None)
        == 0
    )


def test_many_sharers_have_a_bounded_number_of_measures(clock: Clock) -> None:
    """Each that comes later has room for fewer, and for one in any case."""
    quotas = Quotas(Metrics(), clock)
    quotas._set({Entity(client_id=DEFAULT_NAME): {PRODUCED: 1.0}})
    for host in range(20):
        for number in range(5 * MAX):
            client = peer(f"127.0.0.{host}")
            quotas.used(client, quotas.meters(client, f"{host}-{number}"), TOO_MUCH, None)
    most = sum(max(2 * MAX // (host + 1), 1) + 1 for host in range(20))
    assert len(quotas._rates) <= most


def test_what_counts_no_longer_is_forgotten(clock: Clock) -> None:
    """With the time the measures of clients that have gone give way to new ones."""
    quotas, many = Quotas(Metrics(), clock), peer("127.0.0.2")
    quotas._set(ANY_CLIENT)
    for number in range(50 * MAX):
        use_all(quotas, many, f"id-{number}")
    clock.now += TOO_MUCH + MINUTE_S  # by then the debt of one per second is paid
    for number in range(MAX):
        assert quotas.used(many, quotas.meters(many, f"new-{number}"), TOO_MUCH, None) > 0
    assert len(quotas._rates) <= 2 * MAX + 1  # with the one that many shared
    assert quotas.meters(many, "last").produced is not quotas.meters(many, "new-0").produced
