"""The making of a transaction coordinator from the configuration of the broker."""

from __future__ import annotations

from echoless.broker.config.loading import Config
from echoless.coordinators.transactions.config import TransactionConfig
from echoless.coordinators.transactions.coordinator import TransactionCoordinator


def new_coordinator(
    config: Config, elected_connection: int, version: int
) -> TransactionCoordinator:
    """A coordinator without ids. `elected_connection`: the newest connection when this broker was elected."""
    return TransactionCoordinator(transaction_config(config, version), elected_connection)


def transaction_config(config: Config, version: int) -> TransactionConfig:
    """The coordinator's part of the broker's configuration.

    `version`: the generation of the protocol that all brokers serve; what the coordinator decides by itself follows it.
    """
    return TransactionConfig(
        transaction_max_timeout_ms=config.transaction_max_timeout_ms,
        transactional_id_expiration_ms=config.transactional_id_expiration_ms,
        transaction_version=version,
        two_phase_commit_enable=config.transaction_two_phase_commit_enable,
    )
