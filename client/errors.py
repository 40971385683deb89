"""What a producer raises."""

from __future__ import annotations

from client.sequencer_actions import Failure


class ProducerError(Exception):
    """The producer cannot do what it was asked for."""


class DeliveryError(ProducerError):
    """Records were not acknowledged, and will not be.

    `may_be_stored` False: not one of them is in the partition, and no copy of theirs will get there.
    True: nobody can tell; a producer that is resumed from the state sends them under the same
    numbers and finds out. `error_code` is the broker's last word (0: it had none).
    """

    def __init__(
        self, message: str, *, failure: Failure, error_code: int, may_be_stored: bool
    ) -> None:
        stored = "they may have been stored" if may_be_stored else "they were not stored"
        super().__init__(f"{message}; {stored}")
        self.failure = failure
        self.error_code = error_code
        self.may_be_stored = may_be_stored
