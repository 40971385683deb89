"""The settings and bounds of a transaction coordinator."""

from __future__ import annotations

from typing import Final, NamedTuple

EPOCH_BUMP_VERSION: Final = 2
"""The generation of the protocol in which every end of a transaction raises the epoch (KIP-890)."""


class TransactionConfig(NamedTuple):
    """Kafka's names and defaults, and bounds of our own."""

    transaction_max_timeout_ms: int = 900_000
    transactional_id_expiration_ms: int = 7 * 24 * 3_600_000
    transaction_version: int = EPOCH_BUMP_VERSION
    """The finalized level of the feature: what the coordinator does of its own accord follows it."""
    hold_ms: int = 100
    """Time for which a request waits for a change that is under way, before it is refused with 51; 0 refuses at once."""
    held_max: int = 16
    """Requests of one id that may wait. A client has one under way; others come from retries and new instances."""
    retry_ms: int = 100
    """Time after which the end of a transaction is stored again, if that failed."""
    two_phase_commit_enable: bool = False
    """Whether a session may ask for transactions without a timeout."""
    keeps_connection_order: bool = True
    """Whether a request is ignored, and its connection closed, if a newer connection has spoken for the same session."""


class StepInputs(NamedTuple):
    """All that a step is given besides the event."""

    config: TransactionConfig
    spare_producer_id: int | None
    """A producer id that no one has; None if there is none at the moment."""
    elected_connection: int = 0
    """The number of the newest connection when this broker became the coordinator."""
