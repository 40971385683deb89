"""The settings of a producer. The defaults are Kafka's, if Kafka has the setting."""

from __future__ import annotations

from dataclasses import dataclass

from echoless.client.security import NO_SECURITY, Security
from echoless.client.sequencer import IN_FLIGHT_MAX_DEFAULT
from echoless.client.sequencer_actions import AfterFailure
from echoless.protocol.record_batch import Codec


@dataclass(slots=True, frozen=True, kw_only=True)
class Settings:
    """The settings of a producer: times in seconds, sizes in bytes. Raises `ValueError` for what is not above 0."""

    batch_records_max: int = 10_000
    """Records after which a batch ends."""
    batch_bytes_max: int = 64 * 1024
    """Before compression. With `batch_records_max`, the only setting that decides where a batch
    ends.
    """
    compression: Codec = Codec.NONE
    """The codec of batches."""
    request_bytes_max: int = 64 * 1024
    """Small batches of several partitions share a request to their leader, up to this size, and are
    answered when the last of them is committed. 0: each batch has its own request.
    """
    in_flight_max: int = IN_FLIGHT_MAX_DEFAULT
    """Batches in flight per partition. More than the broker's window (5; in Echoless
    `producer_state_batches_to_retain`) costs extra queries after a lost answer, never a record.
    """
    after_failure: AfterFailure = AfterFailure.STOP
    """The reaction of a partition to a batch that has failed for good."""
    asks_on_resume: bool = True
    """Whether a resumed producer asks leaders for their last sequence before it sends."""
    resumes_unnamed_topics: bool = False
    """Whether records found stored in a topic that the resumed state does not name are taken for
    the records given now, as stored after the state was taken. A state without any topic always
    does this.
    """
    delivery_timeout_s: float = 120.0
    """Limit on the time until a batch is acknowledged; after it the batch fails. Also on each step of a transaction."""
    transaction_timeout_s: float = 60.0
    """Limit on a transaction from its first batch on; after it the coordinator aborts it."""
    request_timeout_s: float = 30.0
    """Limit on the wait for one answer."""
    retry_backoff_s: float = 0.05
    """Pause before the second attempt; doubled for each further one, up to `retry_backoff_max_s`, with jitter."""
    retry_backoff_max_s: float = 1.0
    buffer_bytes_max: int = 32 * 1024 * 1024
    """Limit on records waiting for acknowledgements; `send` waits for room."""
    lease_servers: str = ""
    """HOST:PORT[,HOST:PORT...] of native ports (Echoless only). Unless empty, every partition has
    its own producer ids, leased there, each replaced by another before it ends. Such a producer has
    no state to resume from.
    """
    security: Security = NO_SECURITY
    """The way to reach brokers: TLS, and a log-in (`security_of` reads options by Kafka's names)."""
    auto_create_topics: bool = True
    """Whether brokers may create a missing topic, if they are configured to."""

    def __post_init__(self) -> None:
        positive = (
            *("batch_records_max", "batch_bytes_max", "in_flight_max", "delivery_timeout_s"),
            *(
                "transaction_timeout_s",
                "request_timeout_s",
                "retry_backoff_s",
                "retry_backoff_max_s",
                "buffer_bytes_max",
            ),
        )
        for name in positive:
            if getattr(self, name) <= 0:
                raise ValueError(f"{name} is above 0, not {getattr(self, name)}")


DEFAULT_SETTINGS = Settings()
