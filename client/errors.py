"""The exceptions that a producer raises."""

from __future__ import annotations

from echoless.client.sequencer_actions import Failed, Failure
from echoless.protocol.sequence import increment


class ProducerError(Exception):
    """The producer cannot do what was requested: it is closed, has crashed, or no broker answers."""


class DeliveryError(ProducerError):
    """Records were not acknowledged, and will not be. The message names partition, sequences and reason."""

    def __init__(
        self, message: str, *, failure: Failure, error_code: int, may_be_stored: bool
    ) -> None:
        stored = "they may have been stored" if may_be_stored else "they were not stored"
        super().__init__(f"{message}; {stored}")
        self.failure = failure
        """Why the batch failed."""
        self.error_code = error_code
        """Kafka's code in the last answer; 0 if there was none."""
        self.may_be_stored = may_be_stored
        """False: none of the records is in the partition, and no copy of them will get there.

        True: that is unknown; a producer resumed from the state sends them under the same numbers and
        finds out.
        """


def delivery_error(topic: str, partition: int, failed: Failed, last_reason: str) -> DeliveryError:
    """The error for `failed`.

    `last_reason`: why the last attempt did not succeed, if no answer ended it.
    """
    batch, answer = failed.batch, failed.answer
    said = answer.message if answer is not None else last_reason
    last = increment(batch.base_sequence, max(batch.record_count - 1, 0))
    text = (
        f"{topic}-{partition}, sequences {batch.base_sequence} to {last} of producer "
        f"{batch.identity.producer_id} epoch {batch.identity.producer_epoch}: "
        f"{failed.failure.value}"
    )
    return DeliveryError(
        f"{text} ({said})" if said else text,
        failure=failed.failure,
        error_code=answer.error_code if answer is not None else 0,
        may_be_stored=failed.may_be_stored,
    )
