"""Hits become events: each is kept among the decisions, and followed like them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from echoless.broker.decisions.events import FaultedBatch, FaultHit
from echoless.broker.faults.match import Part, RequestFacts

if TYPE_CHECKING:
    from collections.abc import Callable

    from echoless.broker.decisions.decisions import Decisions
    from echoless.broker.faults.requests import ReadRequest
    from echoless.broker.faults.rule import ActiveRule

_NUMBER_TO_COME: Final = 0
_NOBODY: Final = 0
_PLACES_MAX: Final = 3
"""Ids and partitions that are named of one request."""


class Hits:
    """Writes hits into the decisions. Single owner: the event loop."""

    def __init__(self, decisions: Decisions, now_ms: Callable[[], int]) -> None:
        self._decisions = decisions
        self._now_ms = now_ms

    def on_request(self, rule: ActiveRule, request: ReadRequest, parts: Sequence[Part]) -> None:
        """`parts` are those that the rule has picked."""
        facts, peer = request.facts, request.peer
        rule.changes.note()
        self._decisions.record_fault(
            FaultHit(
                number=_NUMBER_TO_COME,
                time_ms=self._now_ms(),
                rule=rule.name,
                action=rule.action.type,
                api=facts.api,
                connection_id=peer.connection_id,
                correlation_id=facts.correlation_id,
                client_id=facts.client_id,
                address=peer.address,
                batches=_batches(parts),
                detail=_detail(rule),
                principal=peer.principal,
                about=_about(facts, parts),
            )
        )

    def on_broker(self, rule: ActiveRule, where: str = "", parts: Sequence[Part] = ()) -> None:
        """Records a hit on a file, a link or the session instead of a request; `where` says which."""
        rule.changes.note()
        self._decisions.record_fault(
            FaultHit(
                number=_NUMBER_TO_COME,
                time_ms=self._now_ms(),
                rule=rule.name,
                action=rule.action.type,
                api="",
                connection_id=_NOBODY,
                correlation_id=_NOBODY,
                client_id=None,
                address=where,
                batches=_batches(parts),
                detail=_detail(rule),
            )
        )


def _detail(rule: ActiveRule) -> str:
    """The fields of its action, as the command line takes them."""
    fields = rule.action.document()
    return " ".join(f"{name}={_text(value)}" for name, value in fields.items() if name != "type")


def _text(value: object) -> str:
    return "-".join(map(str, value)) if isinstance(value, list) else str(value)


def _about(facts: RequestFacts, parts: Sequence[Part]) -> str:
    """The transaction that the parts are of; empty for a request about something else."""
    if not facts.transactional_ids and not facts.results:
        return ""
    ids = {part.transactional_id for part in parts if part.transactional_id}
    results = {part.result for part in parts if part.result} or facts.results
    places = [f"{part.topic}-{part.partition}" for part in parts if part.topic]
    more = [f"and {len(places) - _PLACES_MAX} more"] if len(places) > _PLACES_MAX else []
    words = [*sorted(ids or facts.transactional_ids)[:_PLACES_MAX], *sorted(results)]
    return " ".join([*words, *places[:_PLACES_MAX], *more])


def _batches(parts: Sequence[Part]) -> tuple[FaultedBatch, ...]:
    return tuple(
        FaultedBatch(
            part.topic,
            part.partition,
            part.producer_id,
            part.producer_epoch,
            part.base_sequence,
            part.last_sequence,
        )
        for part in parts
        if part.has_batch
    )
