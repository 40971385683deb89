"""The making of a transaction coordinator from the configuration of the broker."""

from __future__ import annotations

from echoless.broker.config.loading import Config
from echoless.coordinators.transactions.config import TransactionConfig
from echoless.coordinators.transactions.coordinator import TransactionCoordinator


def new_coordinator(config: Config, elected_connection: int) -> TransactionCoordinator:
    """A coordinator without ids. `elected_connection`: the newest connection when this broker was elected."""
    return TransactionCoordinator(
        TransactionConfig(
            transaction_max_timeout_ms=config.transaction_max_timeout_ms,
            transactional_id_expiration_ms=config.transactional_id_expiration_ms,
        ),
        elected_connection,
    )
