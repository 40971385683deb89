"""The conditions of a rule: every field that is given must hold.

Fields of a partition (topic, partition, producer, sequence) must hold together for one partition of
the request; those partitions are the ones that the rule has picked. Knows nothing of bytes: what a
request is about arrives as `RequestFacts`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from echoless.broker.faults.fields import INT32_MAX, RuleError, RuleFields, snake_case
from echoless.broker.network.request import Peer
from echoless.protocol.errors import ErrorCode

_RANGE: Final = re.compile(r"(\d+)(?:-(\d+))?")
BATCH_FIELDS: Final = ("producer_id", "producer_epoch", "base_sequence")
PARTITION_FIELDS: Final = ("topic", "partition", *BATCH_FIELDS)
TRANSACTION_FIELDS: Final = ("transactional_id", "transaction_state", "result")
REQUEST_FIELDS: Final = (
    *("api", "api_version", "client_id", "connection", "principal", "group", "group_state"),
    *TRANSACTION_FIELDS,
    "error",
)
GROUP_STATES: Final = (
    *("Empty", "PreparingRebalance", "CompletingRebalance", "Stable", "Dead"),
    *("Assigning", "Reconciling"),
)
"""States of groups by Kafka's names; the last two are those of the consumer protocol alone."""
TRANSACTION_STATES: Final = (
    *("Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort"),
)
ANY_ERROR: Final = "any"
RESULTS: Final = ("commit", "abort")
"""The ends of a transaction."""
PICKED_AT_ONCE: Final = 500
"""Partitions that are compared with a rule in one go, in about half a millisecond."""
NO_PARTITION: Final = -1
NO_VERSION: Final = -1


class Part(NamedTuple):
    """One partition that a request is about, and the batch for it if there is one."""

    topic: str
    partition: int = NO_PARTITION
    """-1 where the request names the topic alone."""
    producer_id: int = -1
    producer_epoch: int = -1
    base_sequence: int = -1
    last_sequence: int = -1
    has_batch: bool = False
    transactional_id: str | None = None
    """None where the whole request is about one id, or about none."""
    result: str | None = None
    """One of `RESULTS`, of a marker."""


class RequestFacts(NamedTuple):
    """The properties of one request that a rule can match."""

    api: str
    api_version: int
    """-1 on the native port, whose messages have none."""
    client_id: str | None
    correlation_id: int
    parts: Sequence[Part] = ()
    groups: frozenset[str] = frozenset()
    """The consumer groups that it names."""
    transactional_ids: frozenset[str] = frozenset()
    """The transactional ids that it names."""
    results: frozenset[str] = frozenset()
    """The ends that it asks for, as `RESULTS` names them."""
    is_answered: bool = True
    """Whether the client expects an answer: not to a produce request with acks 0."""
    is_between_brokers: bool = False
    from_broker: int | None = None
    """The broker that asks, of a message between brokers."""

    def raises_epoch_of(self, earlier: RequestFacts) -> bool:
        """Whether it has a batch of a newer epoch, for a partition and producer of the earlier one."""
        epochs = {part[:3]: part.producer_epoch for part in earlier.parts if part.has_batch}
        return any(
            part.producer_epoch > epochs.get(part[:3], part.producer_epoch) for part in self.parts
        )


@dataclass(slots=True, frozen=True, kw_only=True)
class Match:
    """The conditions; None holds for anything."""

    api: str | None = None
    api_version: int | None = None
    client_id: str | None = None
    producer_id: int | None = None
    producer_epoch: int | None = None
    topic: str | None = None
    partition: int | None = None
    base_sequence: tuple[int, int] | None = None
    """From the first to the last, both included."""
    connection: int | None = None
    principal: str | None = None
    group: str | None = None
    transactional_id: str | None = None
    result: str | None = None
    """One of `RESULTS`."""
    group_state: str | None = None
    """One of `GROUP_STATES`, of a group that the request names."""
    transaction_state: str | None = None
    """One of `TRANSACTION_STATES`, of a transactional id that the request names."""
    error: ErrorCode | str | None = None
    """An error in the broker's own answer, or `ANY_ERROR`."""

    @classmethod
    def read(cls, fields: RuleFields) -> Match:
        """Raises `RuleError`."""
        return cls(
            api=_api(fields),
            api_version=fields.integer("api_version", most=2**15 - 1),
            client_id=fields.text("client_id"),
            producer_id=fields.integer("producer_id"),
            producer_epoch=fields.integer("producer_epoch", most=2**15 - 1),
            topic=fields.text("topic"),
            partition=fields.integer("partition", most=INT32_MAX),
            base_sequence=_sequences(fields),
            connection=fields.integer("connection", least=1),
            principal=_principal(fields),
            group=fields.text("group"),
            transactional_id=fields.text("transactional_id"),
            result=_result(fields),
            group_state=_state(fields, "group_state", GROUP_STATES),
            transaction_state=_state(fields, "transaction_state", TRANSACTION_STATES),
            error=_error(fields),
        )

    @property
    def given(self) -> list[str]:
        """The names of the fields that are conditions."""
        return [name for name in self.__slots__ if getattr(self, name) is not None]

    @property
    def names_partitions(self) -> bool:
        return any(getattr(self, name) is not None for name in PARTITION_FIELDS)

    @property
    def is_about_states(self) -> bool:
        """Whether coordinators have to be asked."""
        return self.group_state is not None or self.transaction_state is not None

    def is_answered_by(self, codes: frozenset[ErrorCode]) -> bool:
        """Whether these errors are what it wants of the broker's answer."""
        return bool(codes) if self.error == ANY_ERROR else self.error in codes

    def needs_part(self, facts: RequestFacts) -> bool:
        """Whether it applies only to a request with a partition that it picks."""
        if facts.is_between_brokers and facts.transactional_ids:  # of many transactions
            return self.names_partitions or self.transactional_id is not None or bool(self.result)
        return self.names_partitions

    def pick(self, facts: RequestFacts, peer: Peer) -> Iterator[Sequence[Part]]:
        """Yields the partitions that the rule applies to, some at a time; nothing if it does not apply.

        A caller may do something else before it takes the next ones.
        """
        if not self.picks_request(facts, peer):
            return
        if not self.needs_part(facts):
            yield facts.parts
            return
        for start in range(0, len(facts.parts), PICKED_AT_ONCE):
            some = facts.parts[start : start + PICKED_AT_ONCE]
            yield [part for part in some if self.picks_part(part)]

    def picks_request(self, facts: RequestFacts, peer: Peer) -> bool:
        """Whether everything holds that is not about partitions."""
        return (
            self._is(self.api, facts.api)
            and self._is(self.api_version, facts.api_version)
            and self._is(self.client_id, facts.client_id)
            and self._is(self.connection, peer.connection_id)
            and self._is(self.principal, peer.principal)
            and (self.group is None or self.group in facts.groups)
            and (self.transactional_id is None or self.transactional_id in facts.transactional_ids)
            and (self.result is None or self.result in facts.results)
        )

    def picks_part(self, part: Part) -> bool:
        """Whether everything about partitions holds for this one."""
        return (
            self._is(self.topic, part.topic)
            and self._is(self.partition, part.partition)
            and self._is(self.producer_id, part.producer_id)
            and self._is(self.producer_epoch, part.producer_epoch)
            and (
                part.transactional_id is None
                or self._is(self.transactional_id, part.transactional_id)
            )
            and (part.result is None or self._is(self.result, part.result))
            and (part.has_batch or not self.is_about_batches)
            and self._has_sequence(part)
        )

    @property
    def is_about_batches(self) -> bool:
        """Whether a producer's fields imply Produce: other requests that name a producer have to be named."""
        return self.api is None and any(getattr(self, name) is not None for name in BATCH_FIELDS)

    def _has_sequence(self, part: Part) -> bool:
        if self.base_sequence is None:
            return True
        first, last = self.base_sequence
        return part.has_batch and first <= part.base_sequence <= last

    @staticmethod
    def _is(wanted: object, found: object) -> bool:
        return wanted is None or wanted == found

    def document(self) -> dict[str, Any]:
        """The conditions, for JSON."""
        shown = {name: getattr(self, name) for name in self.given}
        if self.base_sequence is not None:
            first, last = self.base_sequence
            shown["base_sequence"] = first if first == last else f"{first}-{last}"
        if isinstance(self.error, ErrorCode):
            shown["error"] = self.error.name
        return shown


def _api(fields: RuleFields) -> str | None:
    """`produce`, or as Kafka writes it: `Produce`, `InitProducerId`."""
    name = fields.text("api")
    return None if name is None else snake_case(name)


def _result(fields: RuleFields) -> str | None:
    result = fields.text("result")
    if result is not None and result not in RESULTS:
        raise fields.wrong("result", " or ".join(RESULTS))
    return result


def _state(fields: RuleFields, name: str, states: Sequence[str]) -> str | None:
    """A state as Kafka writes it, or in snake case."""
    given = fields.text(name)
    if given is None:
        return None
    found = {snake_case(state): state for state in states}
    if (state := found.get(snake_case(given))) is None:
        raise fields.wrong(name, f"one of {', '.join(states)}", found)
    return state


def _error(fields: RuleFields) -> ErrorCode | str | None:
    value = fields.value("error")
    if value is None:
        return None
    if value == ANY_ERROR:
        return ANY_ERROR
    try:
        code = ErrorCode[value.upper()] if isinstance(value, str) else ErrorCode(value)
    except (KeyError, ValueError):
        code = ErrorCode.NONE
    if code is ErrorCode.NONE or isinstance(value, bool):
        takes = f"the number or name of a Kafka error, or {ANY_ERROR}"
        raise fields.wrong("error", takes, map(str.lower, ErrorCode.__members__))
    return code


def _principal(fields: RuleFields) -> str | None:
    principal = fields.text("principal")
    if principal is not None and not all(principal.partition(":")):
        raise fields.wrong("principal", "TYPE:NAME, such as User:alice")
    return principal


def _sequences(fields: RuleFields) -> tuple[int, int] | None:
    value = fields.value("base_sequence")
    if value is None:
        return None
    if type(value) is int and 0 <= value <= INT32_MAX:
        return value, value
    found = _RANGE.fullmatch(value) if isinstance(value, str) else None
    first = int(found[1]) if found else -1
    last = int(found[2] or found[1]) if found else -1
    if not 0 <= first <= last <= INT32_MAX:
        raise fields.wrong("base_sequence", "a sequence (114) or a range of them ('114-120')")
    return first, last


def refuse_fields(match: Match, names: Sequence[str], why: str) -> None:
    """Raises `RuleError` for the first condition among `names`."""
    for name in match.given:
        if name in names:
            raise RuleError(f"match.{name}: {why}")
