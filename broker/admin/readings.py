"""The documents of a broker as JSON: one method per path, however the answer travels.

`application.py` answers HTTP requests with them, `peer_reading.py` the other brokers of the cluster, so that
one console can show them all. Lists are bounded, and read in turns of the event loop.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial
from http import HTTPStatus
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from echoless.broker.admin.callers import Caller
from echoless.broker.admin.documents import (
    add_groups,
    add_topics,
    event_document,
    health_document,
    producer_document,
)
from echoless.broker.admin.group_documents import group_document
from echoless.broker.admin.listeners import listener_document, listener_name
from echoless.broker.admin.overview import (
    add_totals,
    connection_documents,
    overview_document,
    own_version,
)
from echoless.broker.admin.query import (
    read_count,
    read_fact,
    read_index,
    read_optional,
    read_selection,
)
from echoless.broker.admin.refusal import RefusalError
from echoless.broker.admin.transaction_documents import ListedTransactions, transaction_document
from echoless.broker.admin.view import BrokerView
from echoless.broker.faults.permission import refusal
from echoless.broker.network.turns import ADMIN_PORT, for_client, in_thread, work_in_turns
from echoless.protocol.acl import AclOperation
from echoless.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from echoless.protocol.dedup import ProducerEntry

LIST_MAX: Final = 10_000
LIMIT_DEFAULT: Final = 1000

Query = Mapping[str, str]
Document = dict[str, Any]
Reading = Callable[[Caller, Query, Mapping[str, str]], Awaitable[Document]]


class Readable(NamedTuple):
    """One path, and what is read there: takes the caller, the query, and the names in the path."""

    path: str
    read: Reading


class Readings:
    """The documents of one broker."""

    def __init__(self, broker: BrokerView) -> None:
        self._broker = broker
        self.all: Final = {
            "overview": Readable("/overview", self.overview),
            "connections": Readable("/connections", self.connections),
            "topics": Readable("/topics", self.topics),
            "groups": Readable("/groups", self.groups),
            "group": Readable("/groups/{group}", self.group),
            "transactions": Readable("/transactions", self.transactions),
            "transaction": Readable("/transactions/{transactional_id}", self.transaction),
            "producers_of_client": Readable("/producers", self.producers_of_client),
            "producers": Readable("/producers/{topic}/{partition}", self.producers),
            "faults": Readable("/faults", self.faults),
            "listeners": Readable("/listeners", self.listeners),
            "listener": Readable("/listeners/{listener}", self.listener),
        }
        self.for_peers: Final[Mapping[str, Reading]] = {
            **{name: one.read for name, one in self.all.items()},
            "health": self.health,
            "metrics": self.metrics,
            "events": self.events,
        }
        """Readings that other brokers may ask for: some paths answer with something else than JSON."""

    async def overview(self, caller: Caller, _query: Query, _names: Query) -> Document:
        """The broker as a whole, and what the caller may do."""
        await in_thread(own_version)
        totals: dict[str, int] = {}
        await work_in_turns(add_totals(self._broker, totals, caller.may_describe))
        return {**overview_document(self._broker), **totals, "caller": caller.document()}

    async def health(self, caller: Caller, _query: Query, _names: Query) -> Document:
        """Whether a restart would help, and what was found on the disk."""
        failure = self._broker.logs.failure
        if failure is not None:
            raise RefusalError(HTTPStatus.SERVICE_UNAVAILABLE, str(failure))
        return health_document(self._broker, caller.may_describe)

    async def metrics(self, caller: Caller, _query: Query, _names: Query) -> Document:
        """Prometheus' text."""
        from echoless.broker.admin.exposition import Exposition

        caller.require_cluster(AclOperation.DESCRIBE)
        return {"text": (await Exposition(self._broker).text()).decode()}

    async def events(self, caller: Caller, query: Query, _names: Query) -> Document:
        """Events after the event `after`, or all of them if the broker has restarted since.

        `lost`: how many events are remembered no more.
        """
        decisions = self._broker.decisions
        selection = read_selection(query, caller.may_see)
        after = read_count(query, "after", 0, least=0, most=2**63 - 1)
        if after == decisions.number:
            return {"number": after, "lost": 0, "events": []}
        if after > decisions.number:
            after = 0
        most = read_count(query, "n", LIST_MAX, least=0, most=LIST_MAX)
        all_new = [one for one in decisions.latest_events(LIST_MAX) if one.number > after]
        wanted = list(filter(selection.includes, all_new))
        wanted = wanted[len(wanted) - most :] if most < len(wanted) else wanted
        lost = 0 if most < LIST_MAX else decisions.number - after - len(all_new)
        rows = await _listed(map(event_document, wanted))
        return {"number": decisions.number, "lost": lost, "events": rows}

    async def connections(self, caller: Caller, query: Query, _names: Query) -> Document:
        """The open connections, and the software of their clients."""
        caller.require_cluster(AclOperation.DESCRIBE)
        limit = read_count(query, "limit", LIMIT_DEFAULT, least=1, most=LIST_MAX)
        rows = await _listed(connection_documents(self._broker, limit))
        return {"count": self._broker.metrics.connections_open, "connections": rows}

    async def topics(self, caller: Caller, _query: Query, _names: Query) -> Document:
        """The topics, with the partitions that this broker holds."""
        topics: list[Document] = []
        await work_in_turns(add_topics(self._broker, topics, caller.may_describe))
        return {"topics": topics}

    async def groups(self, caller: Caller, _query: Query, _names: Query) -> Document:
        """The consumer groups that this broker coordinates, and whether it knows all of them."""
        groups: list[Document] = []
        found = add_groups(self._broker, groups, caller.may_describe_group, caller.may_describe)
        await work_in_turns(found)
        is_complete = self._broker.groups.readiness() is ErrorCode.NONE
        return {"groups": groups, "complete": is_complete}

    async def group(self, caller: Caller, _query: Query, names: Query) -> Document:
        """One group: its members, and how far behind it is."""
        name = names["group"]
        caller.require_group(name)
        return await group_document(self._broker, name, caller.may_describe)

    async def transactions(self, caller: Caller, query: Query, _names: Query) -> Document:
        """The transactional ids that this broker coordinates, open transactions first, by age."""
        limit = read_count(query, "limit", LIMIT_DEFAULT, least=1, most=LIST_MAX)
        listed = ListedTransactions(limit)
        await work_in_turns(listed.add_all(self._broker, caller.may_describe_transactional_id))
        is_complete = self._broker.transactions.readiness() is ErrorCode.NONE
        return {"count": listed.count, "transactions": listed.rows(), "complete": is_complete}

    async def transaction(self, caller: Caller, _query: Query, names: Query) -> Document:
        """One transactional id: the partitions of its transaction, and where that begins in them."""
        name = names["transactional_id"]
        caller.require_transactional_id(name)
        return await transaction_document(self._broker, name, caller.may_describe)

    async def producers_of_client(self, caller: Caller, query: Query, _names: Query) -> Document:
        """The producers whose batches came last, those of one client if it is named; newest first."""
        limit = read_count(query, "limit", LIMIT_DEFAULT, least=1, most=LIST_MAX)
        client_id = query.get("client_id")
        found = (
            {
                "producer_id": one.header.producer_id,
                "producer_epoch": one.header.producer_epoch,
                "client_id": one.client_id,
                "address": one.address,
                "principal": one.principal,
                "topic": one.topic,
                "partition": one.partition,
                "time_ms": one.time_ms,
            }
            for one in self._broker.decisions.latest_by_producer()
            if client_id in {None, one.client_id} and caller.may_describe(one.topic)
        )
        return {"producers": await _listed(islice(found, limit))}

    async def producers(self, caller: Caller, query: Query, names: Query) -> Document:
        """Producers that a partition remembers."""
        topic, text = names["topic"], names["partition"]
        caller.require_topic(topic)
        index = read_index(text)
        partition = None if index is None else self._broker.partitions.get((topic, index))
        if partition is None:
            raise RefusalError(
                HTTPStatus.NOT_FOUND, f"there is no partition {topic}-{text} on this broker"
            )
        producers = partition.log.producers
        limit = read_count(query, "limit", LIMIT_DEFAULT, least=1, most=LIST_MAX)
        wanted = read_optional(query, "producer_id")
        listed: Iterable[tuple[int, ProducerEntry]]
        if wanted is not None:
            entry = producers.get(wanted)
            listed = [] if entry is None else [(wanted, entry)]
        elif "after" in query:
            after = read_count(query, "after", -1, least=-1, most=2**63 - 1)
            listed = await for_client(ADMIN_PORT, partial(producers.freeze().page, after, limit))
        else:
            listed = islice(producers.freeze().items(), limit)
        rows = await _listed(
            {
                **producer_document(producer_id, entry, self._broker.clock),
                **self._sender(producer_id),
            }
            for producer_id, entry in listed
        )
        head = {"topic": topic, "partition": index, "count": len(producers)}
        return {**head, "retained": producers.window, "producers": rows}

    def _sender(self, producer_id: int) -> Document:
        """The sender of the producer's last batch, if it is remembered."""
        last = self._broker.decisions.last_of(producer_id)
        if last is None:
            return {"client_id": None, "address": None}
        return {"client_id": last.client_id, "address": last.address}

    async def listeners(self, caller: Caller, _query: Query, _names: Query) -> Document:
        """The listeners, and the addresses that their clients are given."""
        caller.require_cluster(AclOperation.DESCRIBE)
        rows = [listener_document(self._broker, one) for one in self._broker.listeners.advertised]
        return {"broker_id": self._broker.config.broker_id, "listeners": rows}

    async def listener(self, caller: Caller, _query: Query, names: Query) -> Document:
        """One listener."""
        caller.require_cluster(AclOperation.DESCRIBE)
        return listener_document(self._broker, listener_name(self._broker, names))

    async def faults(self, caller: Caller, query: Query, _names: Query) -> Document:
        """All rules with their counts, and the reason if none may be set; `removed=true` adds those that are gone."""
        caller.require_cluster(AclOperation.DESCRIBE)
        refused = refusal(self._broker.config)
        why = {} if refused is None else {"reason": refused}
        faults = self._broker.faults
        return {
            "rules": faults.documents(),
            "never_struck": faults.never_struck(),
            **({"removed": faults.removed()} if read_fact(query, "removed") else {}),
            "allowed": refused is None,
            **why,
        }


async def _listed(rows: Iterable[Document]) -> list[Document]:
    found: list[Document] = []
    await work_in_turns(map(found.append, rows))
    return found


def rows_of(document: Document) -> int:
    """The number of rows in the lists of a document, to choose where to encode it."""
    return sum(len(value) for value in document.values() if isinstance(value, list))
