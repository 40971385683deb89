"""The requests that a client sends in a session, and that readers send. Pure."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from tests.oracle.messages import Plain
from tests.oracle.transactions.session import Session
from tests.oracle.transactions.step import (
    GROUPS,
    IDS,
    MISSING,
    PARTITIONS,
    TOPIC,
    Request,
)

LONG_MS: Final = 600_000
SHORT_MS: Final = 3_000
"""The timeout of a transaction that is to be aborted for it."""
NO_VALUES: Final[Mapping[str, Plain]] = {}
_READ_FROM: Final = {
    "fetch": 4,
    "list_offsets": 2,
    "offset_fetch": 5,
    "list_transactions": 0,
    "find_coordinator": 1,
}
"""The lowest versions that are sent."""
_STATE_FILTERS: Final = ([], ["Ongoing"], ["CompleteCommit", "Empty", "Nonsense"])


@dataclass(frozen=True, slots=True)
class Versions:
    """The versions that both brokers serve."""

    generations: tuple[int, ...]
    highest: Mapping[str, int]


class Requests:
    """Makes requests with random details; the number of each is set later."""

    def __init__(self, choices: random.Random, versions: Versions) -> None:
        self._choices = choices
        self._versions = versions
        self._is_mortal = choices.random() < 0.25

    # --- of a session

    def init(self, session: Session, *, is_new: bool = False) -> Request:
        """InitProducerId, of a new session or with the identity that this one has."""
        lowest = 0 if is_new else 3
        may_be_short = self._is_mortal and session.id == IDS[0]  # two could end in either order
        is_short = may_be_short and self._choices.random() < 0.4
        values = {
            "transactional_id": session.id,
            "transaction_timeout": SHORT_MS if is_short else LONG_MS,
            "producer_id": -1,
            "producer_epoch": -1,
            **({} if is_new else session.identity),
        }
        return self._request(
            session, "init_producer_id", self._version("init_producer_id", lowest), values
        )

    def add(self, session: Session) -> Request:
        """AddPartitionsToTxn, sometimes as brokers send it."""
        partitions = self._some_partitions()
        if self._choices.random() < 0.1:
            return self._add_as_broker(session, partitions, is_verify=self._choices.random() < 0.5)
        values = {
            "v3_and_below_transactional_id": session.id,
            "v3_and_below_producer_id": session.producer,
            "v3_and_below_producer_epoch": session.epoch,
            "v3_and_below_topics": [{"name": TOPIC, "partitions": partitions}],
        }
        return self._request(session, "add_partitions_to_txn", self._choices.randint(0, 3), values)

    def _add_as_broker(
        self, session: Session, partitions: list[int], *, is_verify: bool
    ) -> Request:
        transaction = {
            "transactional_id": session.id,
            **session.identity,
            "verify_only": is_verify,
            "topics": [{"name": TOPIC, "partitions": partitions}],
        }
        values = {"transactions": [transaction]}
        return self._request(session, "add_partitions_to_txn", self._choices.randint(4, 5), values)

    def add_offsets(self, session: Session) -> Request:
        """AddOffsetsToTxn."""
        values = {
            "transactional_id": session.id,
            **session.identity,
            "group_id": self._choices.choice(GROUPS),
        }
        return self._request(
            session, "add_offsets_to_txn", self._version("add_offsets_to_txn"), values
        )

    def commit_offsets(self, session: Session) -> Request:
        """TxnOffsetCommit, of no member."""
        rows = [
            {
                "partition_index": index,
                "committed_offset": self._choices.randrange(100),
                "committed_leader_epoch": -1,
                "committed_metadata": "",
            }
            for index in self._some_partitions()
        ]
        values = {
            "transactional_id": session.id,
            "group_id": self._choices.choice(GROUPS),
            **session.identity,
            "generation_id": -1,
            "member_id": "",
            "group_instance_id": None,
            "topics": [{"name": TOPIC, "partitions": rows}],
        }
        version = 5 if session.generation == 2 else self._choices.randint(0, 4)
        return self._request(session, "txn_offset_commit", version, values)

    def produce(self, session: Session) -> Request:
        """Produce, with the next sequence of a partition."""
        partitions = sorted(session.added) if session.generation == 1 else []
        partition = self._choices.choice(partitions or range(PARTITIONS))
        row = {
            "topic": TOPIC,
            "partition": partition,
            "sequence": session.sequences.get(partition, 0),
            "count": self._choices.choice([1, 1, 2, 3]),
        }
        values = {
            "transactional_id": session.id,
            **session.identity,
            "is_transactional": True,
            "text": f"{self._choices.getrandbits(32):08x}",
            "rows": [row],
        }
        version = 12 if session.generation == 2 else self._choices.choice([3, 7, 9, 10, 11])
        return self._request(session, "produce", version, values)

    def end(self, session: Session) -> Request:
        """EndTxn, mostly a commit."""
        return self._ending(session, is_commit=self._choices.random() < 0.6)

    def abort(self, session: Session) -> Request:
        """EndTxn, an abort."""
        return self._ending(session, is_commit=False)

    def _ending(self, session: Session, *, is_commit: bool) -> Request:
        version = 5 if session.generation == 2 else self._choices.randint(0, 4)
        values = {"transactional_id": session.id, **session.identity, "committed": is_commit}
        return self._request(session, "end_txn", version, values)

    # --- of readers

    def reading(self, connection: int, producers: list[str]) -> Request:
        """One of the requests that change nothing; `producers` are the labels of those that are known."""
        kinds: dict[str, Mapping[str, Plain]] = {
            "fetch": self._fetch(),
            "list_offsets": self._list_offsets(),
            "offset_fetch": {
                "group_id": self._choices.choice(GROUPS),
                "topics": [{"name": TOPIC, "partition_indexes": self._some_partitions()}],
                "require_stable": self._choices.random() < 0.5,
            },
            "list_transactions": {
                "state_filters": self._choices.choice(_STATE_FILTERS),
                "producer_id_filters": producers,
                "duration_filter": self._choices.choice([-1, 3_600_000]),
                "transactional_id_pattern": None,
            },
            "find_coordinator": {
                "key": self._choices.choice([*IDS, ""]),
                "key_type": 1,
                "coordinator_keys": [self._choices.choice(IDS), MISSING],
            },
        }
        api = self._choices.choice(list(kinds))
        return self.aside(api, connection, kinds[api], self._version(api, _READ_FROM[api]))

    def _fetch(self) -> Mapping[str, Plain]:
        return {
            "partition": self._choices.randrange(PARTITIONS),
            "offset": self._choices.randrange(12),
            "isolation": self._choices.randrange(2),
            "bytes_max": self._choices.choice([1, 200, 2**20]),
        }

    def _list_offsets(self) -> Mapping[str, Plain]:
        rows = [
            {"partition_index": one, "timestamp": self._choices.choice([-1, -2, 0, 2**62])}
            for one in self._some_partitions()
        ]
        return {
            "replica_id": -1,
            "isolation_level": self._choices.randrange(2),
            "topics": [{"name": TOPIC, "partitions": rows}],
        }

    def aside(
        self, api: str, connection: int, values: Mapping[str, Plain] = NO_VALUES, version: int = 0
    ) -> Request:
        """A request, or a step without an API, that belongs to no session."""
        return Request(
            number=0, client="-", connection=connection, api=api, version=version, values=values
        )

    # --- parts

    def _some_partitions(self) -> list[int]:
        count = self._choices.choice([1, 1, 1, 2])
        return sorted(self._choices.sample(range(PARTITIONS), count))

    def _version(self, api: str, lowest: int = 0) -> int:
        return self._choices.randint(lowest, self._versions.highest[api])

    def _request(
        self, session: Session, api: str, version: int, values: Mapping[str, Plain]
    ) -> Request:
        return Request(
            number=0,
            client=session.name,
            connection=session.connection,
            api=api,
            version=version,
            values=values,
        )
