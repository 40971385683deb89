"""The settings that a producer with a transactional id cannot have."""

from __future__ import annotations

from echoless.client.sequencer_actions import AfterFailure
from echoless.client.settings import Settings
from echoless.client.state import ProducerState


def check_transactional(
    transactional_id: str, settings: Settings, state: ProducerState | None
) -> None:
    """Raises `ValueError` for what has no meaning beside a transactional id."""
    if not transactional_id:
        raise ValueError("transactional_id: a name that is not empty")
    if state is not None:
        raise ValueError("transactional_id: its coordinator keeps the state, none can be given")
    if settings.lease_servers:
        raise ValueError("transactional_id: its producer id is not leased, leave out lease_servers")
    if settings.after_failure is not AfterFailure.STOP:
        raise ValueError(
            "transactional_id: after a failure the transaction is aborted, leave out after_failure"
        )
