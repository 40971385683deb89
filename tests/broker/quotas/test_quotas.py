"""The measures of clients: how many there are in memory."""

from __future__ import annotations

import pytest

from echoless.broker.metrics import Metrics
from echoless.broker.network.request import Peer
from echoless.broker.quotas import quotas as quotas_module
from echoless.broker.quotas.quota import Entity, QuotaKey
from echoless.broker.quotas.quotas import Quotas
from tests.broker.quotas.quota_requests import Clock

MAX = 10
NEW_IDS = 6
"""Client ids that come between two changes of quotas: fewer than are remembered."""


def test_changes_of_quotas_leave_no_measures_of_old_clients(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """However many clients come and go between changes, a bounded number of measures is kept."""
    monkeypatch.setattr(quotas_module, "METERS_MAX", MAX)
    clock = Clock()
    quotas, peer = Quotas(Metrics(), clock), Peer(1, "127.0.0.1:1")
    for change in range(20):
        quotas._set(
            {
                Entity("ANONYMOUS", f"{change}-{number}"): {
                    QuotaKey.PRODUCER_BYTE_RATE: 1.0,
                    QuotaKey.CONTROLLER_MUTATION_RATE: 1.0,
                }
                for number in range(NEW_IDS)
            }
        )
        for number in range(NEW_IDS):
            assert quotas.meters(peer, f"{change}-{number}").produced is not None
        assert len(quotas._rates) <= 4 * MAX
        assert len(quotas._buckets) <= 3 * MAX
