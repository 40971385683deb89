"""The quota of partitions created and deleted per second, `controller_mutation_rate` (KIP-599).

A change is made while the client is not in debt, and may bring it there. From these versions on one beyond that is
refused; older clients do not know the error, so their change is made, and they pause. For the handlers of the three APIs, and for `create_topic` of the native port.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, Self

from echoless.broker.network.request import Answer, Peer, Request
from echoless.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from echoless.broker.quotas.quotas import Quotas
    from echoless.broker.quotas.rate import TokenBucket
    from echoless.broker.services import Services

REFUSED_SINCE: Final = {19: 6, 20: 5, 37: 3}
"""CreateTopics, DeleteTopics and CreatePartitions: the first version that knows THROTTLING_QUOTA_EXCEEDED."""
EXCEEDED: Final = ErrorCode.THROTTLING_QUOTA_EXCEEDED


class Mutations:
    """The changes of topics that one request may make."""

    def __init__(
        self, quotas: Quotas, peer: Peer, client_id: str | None, *, is_strict: bool
    ) -> None:
        """`is_strict`: what is beyond the quota is refused."""
        self._clock = quotas.clock
        self._is_strict = is_strict
        self._quotas = quotas
        self._client = peer, client_id

    @property
    def _bucket(self) -> TokenBucket | None:
        if self._quotas.limits is None:
            return None
        return self._quotas.meters(*self._client).mutations

    @classmethod
    def of(cls, request: Request, services: Services) -> Self:
        """The mutations of a request of the Kafka port."""
        is_strict = request.version >= REFUSED_SINCE[request.api_key]
        return cls(services.quotas, request.peer, request.client_id, is_strict=is_strict)

    @contextmanager
    def counted(self, partitions: int) -> Iterator[None]:
        """Counts a change of so many partitions, unless it fails. Raises `KafkaError` if it may not be made."""
        bucket = self._bucket
        if bucket is None or partitions <= 0:
            yield
            return
        if self._is_strict and bucket.throttle_ms(self._clock()):
            raise KafkaError(EXCEEDED, "The throttling quota has been exceeded.")
        bucket.take(partitions, self._clock())
        try:
            yield
        except BaseException:
            bucket.take(-partitions, self._clock())
            raise


def mutation_pause_ms(request: Request, answer: Answer, bucket: TokenBucket, now: float) -> int:
    """The time the client has to pause: if something was refused, or would be in a newer version."""
    is_strict = request.version >= REFUSED_SINCE[request.api_key]
    if is_strict and not (isinstance(answer, Mapping) and _has_refused(answer)):
        return 0
    return bucket.throttle_ms(now)


def _has_refused(answer: Mapping[str, object]) -> bool:
    return any(
        row["error_code"] is EXCEEDED
        for rows in answer.values()
        if isinstance(rows, list)
        for row in rows
    )
