"""Differences from Apache Kafka in answers about transactions, by name; each has a row in docs/differences.md. Pure.

What Echoless has to answer where it differs follows from how the last transaction of an id has ended, which is known here from the
states that both described (`Ended`), and from `docs/decisions/transaction-coordinator.md`.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from typing import Any, Final, NamedTuple

from tests.oracle.messages import Plain
from tests.oracle.transactions.answers import first_code
from tests.oracle.transactions.step import CLOSED, READ, TIME_OUT, Request

OVERTAKEN: Final = "overtaken connection"
"""Add or EndTxn of the first generation on an older connection than the session's newest: Kafka takes it for a new one."""
FENCED_INIT: Final = "init of a fenced instance"
"""InitProducerId with another epoch than the current one: Kafka aborts the open transaction of the current one."""
INIT_AFTER_ABORT: Final = "init after the session's own abort"
"""The session lost its transaction to its own InitProducerId or to its timeout: Kafka's first generation fences it."""
FENCED_RETURNS: Final = "init of an instance that was fenced"
"""A new instance has aborted its transaction: Kafka's second generation takes the request for a repetition, and lets it in."""
INIT_AFTER_RESTART: Final = "init after a restart"
"""A repetition: Kafka 3.9 and 4.2 do not store the epoch before the current one."""
ENDED: Final = "end of a transaction that has ended"
"""Answered from how it ended."""
OTHER_GENERATION: Final = "end of the transaction before the last"
"""Its end raised the epoch, that of the next one did not: Kafka takes it for the end of the last one."""
ADD_AFTER_TIMEOUT: Final = "add after a timeout"
"""49 instead of 90: clients of the first generation take a new epoch and go on."""
LATER_EPOCH: Final = "later epoch in an open transaction"
"""Kafka 3.9 asks only whether a transaction of the producer id is open on the partition, whatever its epoch."""
GENERATION_OF_NO_GROUP: Final = "offsets of a generation of no group"
"""Kafka 3.9 makes the group, 4.2 has one that a transaction made whose offsets are not committed: 25 instead of 22."""
OLDER_EPOCH: Final = "older epoch than the partition knows"
"""Kafka 3.9 asks the coordinator first, and answers with its code; here, and in Kafka from 4.1 on, it is 47."""
UNVERIFIED_ATTEMPT: Final = "sequence of an unverified attempt"
"""Kafka remembers the lowest sequence that was verified, even if its batch was refused or is stored already; the next one gets 45."""
OLD_REPEAT: Final = "repeat older than the window"
"""Every sequence of it is stored, but not as one of the last batches: 46 instead of 45."""
WHOLE_WINDOW: Final = "whole window after a restart"
"""A repetition of an older batch of the window: Kafka's snapshots keep one batch of each producer."""
REUSED: Final = "the same numbers, other records"
"""A sequence that is used twice: Kafka takes it for a repetition, and loses the records."""
LOST_OFFSETS: Final = "offsets lost by a refused commit"
"""Kafka 3.9 drops what a transaction has committed if an older epoch's commit of the same partition is refused."""
START_OF_IDLE: Final = "start of an idle id"
"""Kafka keeps the start of the last transaction in memory, so ListTransactions takes an idle id for one that began then."""
MIXED_VERIFICATION: Final = "verified together"
"""A batch of verifications gets the codes of the version that came first: 120 for an old one, or 48 for a new one."""
NAMES: Final = (
    OVERTAKEN,
    FENCED_INIT,
    INIT_AFTER_ABORT,
    FENCED_RETURNS,
    INIT_AFTER_RESTART,
    ENDED,
    OTHER_GENERATION,
    ADD_AFTER_TIMEOUT,
    LATER_EPOCH,
    OLDER_EPOCH,
    UNVERIFIED_ATTEMPT,
    OLD_REPEAT,
    WHOLE_WINDOW,
    REUSED,
    GENERATION_OF_NO_GROUP,
    LOST_OFFSETS,
    START_OF_IDLE,
    MIXED_VERIFICATION,
)
ENDS: Final = frozenset({OVERTAKEN, LATER_EPOCH, UNVERIFIED_ATTEMPT, LOST_OFFSETS})
"""After these the two go separate ways; a history ends as well when the states differ."""
_FENCED: Final = frozenset({47, 90})


class End(enum.Enum):
    """How a transaction ended."""

    COMMITTED = "committed"
    ABORTED = "aborted by its session"
    TIMED_OUT = "timed out"
    FENCED = "aborted for a new instance"


class Ended(NamedTuple):
    """The transaction of an id that ended last."""

    producer: str
    epoch: int
    end: End


Stream = tuple[str, int, int]
"""A producer id's label, its epoch and a partition."""


def stream_of(step: Request) -> Stream:
    """The stream of the first batch in a produce request."""
    values = step.values
    return values["producer_id"], values["producer_epoch"], values["rows"][0]["partition"]


class Place(NamedTuple):
    """The place in a history at which the brokers differ."""

    step: Request
    before: Mapping[str, Any]
    """The states of all ids before the step, by id."""
    ended: Mapping[str, Ended]
    attempts: Mapping[Stream, int]
    """The lowest sequence of batches that were not appended since the last one that was."""
    refused_offsets: AbstractSet[tuple[str, int]]
    """Groups and partitions of commits that were refused for their epoch."""
    is_repeat: bool
    """Whether Echoless answers with the offset of a batch that is stored already."""
    is_kafka_4: bool
    is_after_restart: bool

    @property
    def id(self) -> str:
        return str(_field(self.step.values, "transactional_id"))

    @property
    def identity(self) -> tuple[Any, Any]:
        values = self.step.values
        return _field(values, "producer_id"), _field(values, "producer_epoch")

    @property
    def current(self) -> tuple[Any, Any]:
        row = self.before[self.id]
        return row["producer"], row["epoch"]

    @property
    def state(self) -> str:
        """The id's state; "" if it is not known."""
        return str(self.before[self.id]["state"]) if self.id in self.before else ""

    @property
    def end(self) -> End | None:
        """How the last transaction ended, if it was one of the identity in the request."""
        found = self.ended.get(self.id)
        return found.end if found is not None and found[:2] == self.identity else None


def ended_by(
    step: Request, before: Mapping[str, Any], after: Mapping[str, Any]
) -> dict[str, Ended]:
    """The transactions that have ended with a step, by id."""
    found = {}
    for name, row in before.items():
        is_empty = step.api == "end_txn" and after[name] != row and row["state"] != "Ongoing"
        if (row["state"] == "Ongoing" or is_empty) and after[name]["state"].startswith("Complete"):
            found[name] = Ended(row["producer"], row["epoch"], _end_of(step))
    return found


def _end_of(step: Request) -> End:
    match step.api:
        case "end_txn":
            return End.COMMITTED if step.values["committed"] else End.ABORTED
        case "init_producer_id":
            return End.FENCED if step.values["producer_id"] == -1 else End.ABORTED
    assert step.api == TIME_OUT, f"a transaction has ended in {step}"
    return End.TIMED_OUT


def explain(place: Place, kafka: Plain, echoless: Plain) -> str:
    """Returns the name of the difference; "" without one."""
    step = place.step
    if echoless == CLOSED:
        return OVERTAKEN if step.api in _ORDERED else ""
    if step.api == "list_transactions":
        return _explain_list(step, kafka, echoless)
    if step.api in {READ, "offset_fetch"}:
        is_lost = not place.is_kafka_4 and _offsets(place, kafka) == _offsets(place, echoless)
        return LOST_OFFSETS if is_lost else ""
    codes = first_code(step, kafka), first_code(step, echoless)
    match step.api:
        case "init_producer_id":
            return _explain_init(place, *codes)
        case "end_txn":
            return _explain_end(place, *codes)
        case "add_partitions_to_txn" | "add_offsets_to_txn":
            is_late = place.end is End.TIMED_OUT and codes[1] == 49 and codes[0] in _FENCED
            return ADD_AFTER_TIMEOUT if is_late else ""
        case "produce":
            return _explain_batch(place, *codes)
        case "txn_offset_commit":
            if name := _explain_batch(place, *codes):
                return name
            is_of_no_group = codes == (25, 22) and step.values["generation_id"] >= 0
            return GENERATION_OF_NO_GROUP if is_of_no_group else ""
    return ""


_ORDERED: Final = frozenset({"add_partitions_to_txn", "add_offsets_to_txn", "end_txn"})


def _explain_list(step: Request, kafka: Plain, echoless: Plain) -> str:
    """Whether Kafka leaves out what has no transaction, and nothing else differs."""
    rows = [one for one in echoless["transaction_states"] if one not in kafka["transaction_states"]]
    rest = [one for one in echoless["transaction_states"] if one in kafka["transaction_states"]]
    is_idle = all(one["transaction_state"] == "Empty" for one in rows)
    is_same = {**echoless, "transaction_states": rest} == kafka
    return START_OF_IDLE if is_idle and is_same and step.values["duration_filter"] >= 0 else ""


def _offsets(place: Place, answer: Plain) -> Plain:
    return _without_refused(place, answer, place.step.values.get("group_id", ""))


def _without_refused(place: Place, answer: Plain, group: str = "") -> Plain:
    """The answer without the offsets of commits that were refused; `group` is that of OffsetFetch."""
    if isinstance(answer, list):
        return [_without_refused(place, one, group) for one in answer]
    if not isinstance(answer, Mapping):
        return answer
    if (group, answer.get("partition_index")) in place.refused_offsets:
        return None
    return {
        key: _without_refused(
            place, one, key.split()[1].strip(",") if key.startswith("group ") else group
        )
        for key, one in answer.items()
    }


def _explain_init(place: Place, kafka: int, echoless: int) -> str:
    if place.step.values["producer_id"] == -1:
        return ""
    if place.state == "Ongoing":
        is_other = place.identity != place.current
        return FENCED_INIT if is_other and kafka == 51 and echoless in _FENCED else ""
    if place.end is End.FENCED and place.is_kafka_4:
        return FENCED_RETURNS if kafka == 0 and echoless in _FENCED else ""
    if kafka not in _FENCED or echoless != 0:
        return ""
    if place.state == "CompleteAbort" and place.end in {End.ABORTED, End.TIMED_OUT}:
        return INIT_AFTER_ABORT
    return INIT_AFTER_RESTART if place.is_after_restart else ""


def _explain_end(place: Place, kafka: int, echoless: int) -> str:
    expected = _ended_code(place)
    if expected is not None:
        return ENDED if echoless in expected else ""
    producer, epoch = place.identity
    ended = place.ended.get(place.id)
    is_before = ended is not None and ended[:2] == place.current == (producer, epoch + 1)
    return OTHER_GENERATION if is_before and kafka == 0 and echoless in _FENCED else ""


def _ended_code(place: Place) -> frozenset[int] | None:
    """The codes that an EndTxn gets here for a transaction that has ended; None if it names another."""
    values, end = place.step.values, place.end
    ended = place.ended.get(place.id)
    is_idle = ended is not None and place.identity == place.current == (ended[0], ended[1] + 1)
    if is_idle and place.state.startswith("Complete") and place.step.version < 5:
        return frozenset({48})  # the epoch that came with the end has no transaction yet
    if end is None or place.state == "Ongoing":
        return None
    if end is End.FENCED:
        return _FENCED
    is_true = values["committed"] == (end is End.COMMITTED)
    is_second = place.step.version >= 5
    if place.state == "Empty":
        may_say = is_true and end is not End.TIMED_OUT and not is_second
        return frozenset({0}) if may_say else _FENCED
    if is_true:
        return frozenset({0})
    if end is End.TIMED_OUT:
        return frozenset({120 if is_second else 49})
    return frozenset({48})


def _explain_batch(place: Place, kafka: int, echoless: int) -> str:
    """The difference about a batch, of records or of offsets."""
    if {kafka, echoless} == {48, 120}:
        return MIXED_VERIFICATION
    is_later = place.state == "Ongoing" and place.identity[1] > place.current[1]
    if is_later and not place.is_kafka_4 and kafka in {0, 45} and echoless == 47:
        return LATER_EPOCH
    if not place.is_kafka_4 and echoless == 47 and kafka in {22, 25, 42, 48, 49, 120}:
        return OLDER_EPOCH
    if (kafka, echoless) == (45, 46):
        return OLD_REPEAT
    if (kafka, echoless) == (45, 0):
        if place.is_repeat:
            return WHOLE_WINDOW if place.is_after_restart else ""
        return UNVERIFIED_ATTEMPT if stream_of(place.step) in place.attempts else ""
    return REUSED if (kafka, echoless) == (0, 59) else ""


def _field(values: Plain, key: str) -> Plain:
    """A field of a request, wherever it is."""
    if isinstance(values, Mapping):
        for name, one in values.items():
            if name in {key, f"v3_and_below_{key}"}:
                return one
            if (found := _field(one, key)) is not None:
                return found
    if isinstance(values, list):
        return next((found for one in values if (found := _field(one, key)) is not None), None)
    return None
