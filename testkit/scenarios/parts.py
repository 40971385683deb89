"""The parts that each client can play, and the known outcomes that differ; with the reasons."""

from __future__ import annotations

from typing import Final, NamedTuple

from echoless.testkit.clients.programs import PROGRAMS
from echoless.testkit.scenarios import groups, transactions
from echoless.testkit.scenarios.scenario import Scenario
from echoless.testkit.scenarios.verdict import Outcome

SCRIPTED: Final = "scripted"
CLIENTS: Final = (SCRIPTED, *PROGRAMS)

_ONE_BATCH: Final = (
    "it sends one batch of a partition at a time, so that none can overtake another or fall out of "
    "the window"
)
_RAISES_ITS_EPOCH: Final = (
    "it answers INVALID_PRODUCER_EPOCH by raising its own epoch, again and again, until "
    "it is past the successor's, and so fences the successor in its turn; on its way its batch "
    "may count as a repeat of the successor's, and be acknowledged without being stored"
)


class Limitation(NamedTuple):
    """A client's known outcome of a scenario, if it differs from the one Echoless aims for."""

    outcome: Outcome
    is_fatal: bool
    """Whether the producer takes no more records afterwards."""
    reason: str


NO_PART: Final[dict[tuple[str, str], str]] = {
    ("window-missed", "librdkafka"): (
        "it was seen to have two batches in flight at most while an answer is overdue"
    ),
    ("window-missed", "kafkajs"): _ONE_BATCH,
    ("window-missed", "aiokafka"): _ONE_BATCH,
    ("delayed-end", "kafkajs"): (
        "it gives up an end that is not answered in time, and its program begins anew, which aborts the transaction"
    ),
    ("coordinator-moved", "kafkajs"): "it ends a transaction of which a connection is closed",
    **{
        ("id-block-race", name): "a producer asks for one id; the race is between brokers"
        for name in PROGRAMS
    },
    **{
        (
            scenario.name,
            name,
        ): "the copiers are the clients; who has written their input is the same"
        for scenario in groups.SCENARIOS
        for name in PROGRAMS
    },
    **{
        (scenario.name, name): "its producers and readers are always librdkafka's"
        for scenario in transactions.SCENARIOS
        for name in PROGRAMS
        if scenario.name not in transactions.OF_ALL_FAMILIES or name == "librdkafka"
    },
}
"""By scenario and client: why the client has no part in it."""

LIMITATIONS: Final[dict[tuple[str, str], Limitation]] = {
    ("zombie", "franz-go"): Limitation(
        Outcome.ONCE,
        is_fatal=False,
        reason=_RAISES_ITS_EPOCH,
    ),
    ("stolen-producer-id", "franz-go"): Limitation(
        Outcome.ONCE, is_fatal=False, reason=_RAISES_ITS_EPOCH
    ),
    ("right-revoked", "librdkafka"): Limitation(
        Outcome.REFUSED,
        is_fatal=False,
        reason="it gives up the next batch unsent, with the same error, although the right is back",
    ),
    ("right-revoked", "aiokafka"): Limitation(
        Outcome.REFUSED,
        is_fatal=False,
        reason="it does not raise its epoch after a batch that it gives up: the next one leaves a gap, "
        "and is given up with OutOfOrderSequenceNumber",
    ),
}


def expected(scenario: Scenario, client: str) -> tuple[Outcome, bool]:
    """The outcome, and whether the client is unusable afterwards."""
    limitation = LIMITATIONS.get((scenario.name, client))
    if limitation is None:
        return scenario.expected, False
    return limitation.outcome, limitation.is_fatal
