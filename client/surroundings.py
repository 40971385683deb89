"""The parts of a producer that its partition senders share."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from random import Random

from echoless.client.batch import Delivery
from echoless.client.cluster import Cluster
from echoless.client.errors import DeliveryError
from echoless.client.lease_keeper import LeaseKeeper
from echoless.client.produce_request import NO_TRANSACTION, ProduceTerms
from echoless.client.sequenced_batch import Identity
from echoless.client.settings import Settings
from echoless.client.transactions.session import TransactionalSession


@dataclass(slots=True, frozen=True, kw_only=True)
class Surroundings:
    """Shared by all the senders of one producer."""

    cluster: Cluster
    settings: Settings
    rng: Random
    new_identity: Callable[[], Awaitable[Identity]]
    """Raises `NoLeaderError`."""
    leases: LeaseKeeper | None
    """None if ids are not leased."""
    on_delivered: Callable[[Delivery], None]
    on_failed: Callable[[Delivery, DeliveryError], None]
    """Called once for a delivery."""
    on_crash: Callable[[BaseException], None]
    """Called when a sender has died of a bug."""
    session: TransactionalSession | None = None
    """None if the producer has no transactional id."""

    @property
    def terms(self) -> ProduceTerms:
        """The terms on which batches are sent."""
        return NO_TRANSACTION if self.session is None else self.session.terms
