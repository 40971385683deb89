"""The resumable idempotent producer on asyncio.

    async with AsyncProducer("127.0.0.1:9092") as producer:
        delivery = await producer.send("orders", b"one", partition=0)
        acknowledgement = await delivery

A batch is sent when it is full, when one of its deliveries is awaited, and by `flush`: never
because time has passed, so that the same calls always make the same batches.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Callable, Generator, Mapping
from types import TracebackType
from typing import Any, Self

from echoless.client.acknowledgements import Acknowledgement, Acknowledgements
from echoless.client.batch import (
    Delivery,
    DeliveryFuture,
    Records,
    key_that_decides,
    now_ms,
    partition_of,
    size_of,
)
from echoless.client.cluster import Cluster, NoLeaderError, parse_addresses
from echoless.client.errors import DeliveryError, ProducerError
from echoless.client.lease_keeper import LeaseKeeper, elapsed_s
from echoless.client.lease_servers import LeaseServers
from echoless.client.leased_partition import NO_IDENTITY
from echoless.client.open_batches import OpenBatch, OpenBatches
from echoless.client.partition_sender import PartitionSender
from echoless.client.producer_ids import new_identity, new_identity_within
from echoless.client.sequenced_batch import Identity
from echoless.client.sequencer_actions import Failure
from echoless.client.settings import DEFAULT_SETTINGS, Settings
from echoless.client.starts import Starts
from echoless.client.state import ProducerState
from echoless.client.surroundings import Surroundings
from echoless.client.transactions.checks import check_transactional
from echoless.client.transactions.errors import TransactionError
from echoless.client.transactions.group_metadata import GroupMetadata
from echoless.client.transactions.session import TransactionalSession
from echoless.client.transactions.transactions import Transactions, TransactionStage
from echoless.protocol.records import Headers

AsyncOutcome = asyncio.Future[Acknowledgements]


class RecordDelivery:
    """The outcome of one record: `await` sends its batch, full or not, and returns the `Acknowledgement`.

    Raises `DeliveryError`.
    """

    __slots__ = ("_batch", "_cut", "_index")

    def __init__(
        self,
        batch: OpenBatch[AsyncOutcome],
        index: int,
        cut: Callable[[OpenBatch[AsyncOutcome]], None],
    ) -> None:
        self._batch = batch
        self._index = index
        self._cut = cut

    def __await__(self) -> Generator[Any, None, Acknowledgement]:
        """Raises `DeliveryError`."""
        self._cut(self._batch)
        acknowledgements = yield from asyncio.shield(self._batch.outcome).__await__()
        return acknowledgements[self._index]


class AsyncProducer:
    """An idempotent producer on asyncio. Not safe for concurrent tasks, except for awaiting deliveries.

    `async with` starts it, flushes unless the block raised, and closes it.
    """

    def __init__(
        self,
        bootstrap_servers: str,
        settings: Settings = DEFAULT_SETTINGS,
        *,
        state: ProducerState | None = None,
        transactional_id: str | None = None,
        rng: random.Random | None = None,
        clock_ms: Callable[[], int] = now_ms,
        lease_clock_s: Callable[[], float] = elapsed_s,
    ) -> None:
        """`bootstrap_servers` is HOST:PORT[,HOST:PORT...]; `state`: see `resume`. The others are for tests.

        With a `transactional_id` all records are part of transactions. Raises `ValueError` for servers that are not of
        this form, for `lease_servers` with a state, and for either of them, or `AfterFailure.NEW_EPOCH`, with a
        transactional id.
        """
        if settings.lease_servers and state is not None:
            raise ValueError("a resumed producer keeps its ids: it cannot use lease_servers")
        if transactional_id is not None:
            check_transactional(transactional_id, settings, state)
        self.settings = settings
        self._bootstrap = parse_addresses(bootstrap_servers)
        self._state = state
        self._transactional_id = transactional_id
        self._transactions: Transactions | None = None
        self._starts: Starts | None = None
        self._rng = rng or random.Random()  # noqa: S311  jitter
        self._clock_ms = clock_ms
        self._lease_clock_s = lease_clock_s
        self._leasing: asyncio.Task[None] | None = None
        self._closing: asyncio.Task[None] | None = None
        self._around: Surroundings | None = None
        self._senders: dict[tuple[str, int], PartitionSender] = {}
        self._batches = OpenBatches[AsyncOutcome](settings, self._new_outcome, self._submit_open)
        self._outstanding: dict[Delivery, None] = {}
        self._outstanding_bytes = 0
        self._progress = asyncio.Event()
        self._first_error: DeliveryError | None = None
        self._crash: BaseException | None = None

    @classmethod
    def resume(
        cls,
        state: ProducerState | str,
        bootstrap_servers: str,
        settings: Settings = DEFAULT_SETTINGS,
    ) -> Self:
        """A producer that continues from where `state` (or its JSON) was taken.

        The caller has to give it, per partition and in the same order, every record that had no
        acknowledgement then; records already stored are acknowledged and not stored again. Raises
        `StateError`.
        """
        if isinstance(state, str):
            state = ProducerState.from_json(state)
        return cls(bootstrap_servers, settings, state=state)

    async def start(self) -> None:
        """Gets a producer id, or takes the one of the state. Raises `ProducerError`.

        With a transactional id it begins a session: earlier ones are fenced, and what they have open is aborted.
        Raises `TransactionError` if that fails.
        """
        settings = self.settings
        cluster = self._open_cluster()
        if self._state is not None:
            self._starts = Starts.resumed(self._state, settings)
        elif settings.lease_servers:
            self._starts = Starts(NO_IDENTITY)
        else:
            try:
                self._starts = Starts(await self._new_identity(cluster))
            except BaseException:
                await cluster.close()
                raise
        self._around = Surroundings(
            cluster=cluster,
            settings=settings,
            rng=self._rng,
            new_identity=lambda: new_identity(cluster),
            leases=self._begin_leasing() if settings.lease_servers else None,
            session=self._transactions.session if self._transactions is not None else None,
            on_delivered=self._on_delivered,
            on_failed=self._on_failed,
            on_crash=self._on_crash,
        )

    def _open_cluster(self) -> Cluster:
        return Cluster(
            self._bootstrap,
            timeout_s=self.settings.request_timeout_s,
            auto_create_topics=self.settings.auto_create_topics,
            security=self.settings.security,
        )

    async def _close_cluster(self, cluster: Cluster) -> None:
        await cluster.close()

    async def _new_identity(self, cluster: Cluster) -> Identity:
        if self._transactional_id is None:
            return await new_identity_within(cluster, self.settings, self._rng)
        session = TransactionalSession(cluster, self._transactional_id, self.settings)
        await session.begin()
        self._transactions = Transactions(session, self._on_transaction_failed)
        return session.identity

    async def send(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        partition: int | None = None,
        headers: Headers = (),
        timestamp_ms: int | None = None,
    ) -> RecordDelivery:
        """Adds a record to its partition's batch; waits only for room in the buffer.

        Without a partition the key decides, as in Kafka's own client. Without a timestamp (in ms since 1970)
        the record gets the current time, and a second run's bytes differ from those of the first.

        Raises `ValueError` without partition and key, and `ProducerError` if it is not running or the number
        of partitions is not known. With a transactional id also if no transaction is open, and `AbortableError` if it
        cannot be committed any more.
        """
        if partition is None:
            key = key_that_decides(key)
            partition = partition_of(key, await self.count_partitions(topic))
        await self._wait_for_room()
        self._running()
        if self._transactions is not None:
            self._transactions.check_sound()
        timestamp = self._clock_ms() if timestamp_ms is None else timestamp_ms
        batch, index = self._batches.add(topic, partition, (-1, timestamp, key, value, headers))
        return RecordDelivery(batch, index, self._batches.cut)

    async def send_batch(self, topic: str, partition: int, records: Records) -> Acknowledgements:
        """Sends exactly these records as one batch, and waits for it. Raises `DeliveryError`.

        The records' offsets are ignored. Everything sent to the partition earlier goes first.
        Records that are already encoded come as a `ReadyBatch` (`ColumnBatches`).
        """
        await self._wait_for_room()
        self._batches.cut_partition(topic, partition)
        outcome = self._new_outcome()
        self.submit(topic, partition, records, size_of(records), outcome)
        return await asyncio.shield(outcome)

    def submit(
        self, topic: str, partition: int, records: Records, size: int, outcome: DeliveryFuture
    ) -> None:
        """Sends exactly these records as one batch; `outcome` gets the acknowledgements.

        `size` is that of `size_of`. If they cannot be encoded, this raises, and `outcome` fails too.
        """
        around = self._running()
        if not len(records):
            raise ValueError("a batch holds at least one record")
        if self._transactions is not None:
            self._transactions.check_sound()
        delivery = Delivery(outcome, len(records), size)
        sender = self._senders.get((topic, partition))
        if sender is None:
            assert self._starts is not None
            sender = PartitionSender(topic, partition, self._starts.take(topic, partition), around)
            self._senders[topic, partition] = sender
        if self._transactions is not None:
            self._transactions.join(topic, partition, sender)
        self._outstanding[delivery] = None
        self._outstanding_bytes += delivery.size
        try:
            sender.add(records, delivery)
        except Exception as error:
            self._on_delivered(delivery)
            delivery.fail(error)
            if self._transactions is not None:
                self._transactions.fail(ProducerError(f"a batch cannot be encoded: {error}"))
            raise

    async def flush(self) -> None:
        """Sends everything and waits for it. Raises the first `DeliveryError` since the last flush."""
        self._batches.cut_all()
        while self._outstanding:
            await self._next_progress()
        error, self._first_error = self._first_error, None
        if error is not None:
            raise error

    @contextlib.asynccontextmanager
    async def transaction(self) -> AsyncIterator[None]:
        """A block whose records and offsets become visible together, at its end, or not at all.

        If the block raises, or the transaction cannot be committed, it is aborted, and the exception is passed on:
        after a `DeliveryError` or an `AbortableError` another transaction may be begun. Raises `TransactionError`.
        """
        await self.begin_transaction()
        try:
            yield
            await self.commit_transaction()
        except BaseException as error:
            if self.is_in_transaction:
                await self.abort_transaction()
            elif isinstance(error, DeliveryError):  # the session is over, which says more
                self.check_session()
            raise

    @property
    def is_in_transaction(self) -> bool:
        """Whether a transaction is open: begun, and neither committed nor aborted, nor about to be."""
        return self._transactions is not None and self._transactions.stage is TransactionStage.OPEN

    def check_session(self) -> None:
        """Raises the `TransactionError` that has ended the producer's session, if there was one."""
        if self._transactions is not None:
            self._transactions.check_alive()

    async def begin_transaction(self) -> None:
        """Begins a transaction. Raises `ProducerError` if one is open, `TransactionError` if there can be none."""
        transactions = self._in_transactions()
        await transactions.begin()
        self._take_identity(transactions)

    async def send_offsets(
        self, offsets: Mapping[tuple[str, int], int], group: GroupMetadata, metadata: str = ""
    ) -> None:
        """Commits offsets of a consumer group, by topic and partition, with the transaction.

        Each is that of the next record to read; `metadata` is stored beside it. Raises `AbortableError`, also if the
        group refuses the member, and `FencedError`.
        """
        await self._in_transactions().send_offsets(offsets, group, metadata)

    async def commit_transaction(self) -> None:
        """Sends everything, waits for it, and commits.

        Raises `AbortableError` if that is impossible: abort. `UnansweredError`: commit again, nothing else. Other
        `TransactionError`s are final.
        """
        transactions = self._in_transactions()
        if transactions.stage is not TransactionStage.COMMITTING:
            transactions.check(TransactionStage.OPEN)
            with contextlib.suppress(DeliveryError):  # the transaction knows of it, too
                await self.flush()
        await transactions.commit()
        self._take_identity(transactions)

    async def abort_transaction(self) -> None:
        """Aborts; what is not acknowledged fails. Raises `TransactionError`; after `UnansweredError` abort again."""
        transactions = self._in_transactions()
        transactions.begin_abort()
        reason = "its transaction is aborted"
        for batch in self._batches.drop():
            Delivery(batch.outcome, len(batch.records), batch.size).fail(stopped(reason))
        if transactions.is_begun:  # otherwise the senders go on under their numbers
            # They are forgotten at the end: if this is cancelled before, the next call closes them.
            await asyncio.gather(*(sender.stop() for sender in self._senders.values()))
            for sender in list(self._senders.values()):
                await sender.close()
            self._senders.clear()
            self._fail_all(reason)
        self._first_error = None
        await transactions.abort()
        self._take_identity(transactions)

    def state(self) -> ProducerState:
        """The numbers from which a later run continues; records in open batches count as not given.

        Save it together with the position of the first record that is not acknowledged: after a
        `flush`, that is the position of the next record.
        """
        around = self._running()
        if around.leases is not None:
            raise ProducerError("leased producer ids expire and are replaced: there is no state")
        if around.session is not None:
            raise ProducerError("a producer with a transactional id has no state to resume from")
        assert self._starts is not None
        known = {**self._starts.resumed_states, **{k: s.state() for k, s in self._senders.items()}}
        producer_id, epoch = self._starts.identity
        return ProducerState(
            producer_id=producer_id,
            producer_epoch=epoch,
            partitions=tuple(known[key] for key in sorted(known)),
        )

    async def count_partitions(self, topic: str) -> int:
        """The number of partitions; waits for the topic until the delivery timeout.

        Raises `ProducerError`.
        """
        cluster = self._running().cluster
        deadline = self._loop_time() + self.settings.delivery_timeout_s
        while True:
            try:
                return await cluster.partition_count(topic)
            except NoLeaderError as error:
                if error.final_code or self._loop_time() > deadline:
                    raise ProducerError(str(error)) from error
            await asyncio.sleep(self.settings.retry_backoff_s)

    async def close(self) -> None:
        """Stops at once: records not yet acknowledged fail. Call `flush` first to send them.

        If it is cancelled, it goes on nevertheless, and another call waits for its end.
        """
        around, self._around = self._around, None
        if around is not None:
            self._closing = asyncio.get_running_loop().create_task(self._close(around.cluster))
        if self._closing is not None:
            await asyncio.shield(self._closing)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Flushes, unless the block raised; aborts a transaction that is open."""
        try:
            if exc_type is None and self._transactions is None:
                await self.flush()
            elif exc_type is None and self.is_in_transaction:
                await self.abort_transaction()
        finally:
            await self.close()

    async def _close(self, cluster: Cluster) -> None:
        try:
            if self._leasing is not None:
                self._leasing.cancel()
                await asyncio.gather(self._leasing, return_exceptions=True)
            if self._transactions is not None:
                await self._transactions.stop_adding()
            for sender in list(self._senders.values()):
                await sender.close()
            await self._close_cluster(cluster)
        finally:
            self._fail_all("the producer was closed")

    def _begin_leasing(self) -> LeaseKeeper:
        servers = LeaseServers(
            parse_addresses(self.settings.lease_servers),
            timeout_s=self.settings.request_timeout_s,
            security=self.settings.security,
        )
        keeper = LeaseKeeper(servers.request, now=self._lease_clock_s, on_news=self._on_leases)
        self._leasing = asyncio.get_running_loop().create_task(keeper.run())
        self._leasing.add_done_callback(self._on_leasing_end)
        return keeper

    def _on_leases(self) -> None:
        for sender in self._senders.values():
            sender.wake()

    def _on_leasing_end(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled():
            error = task.exception()
            assert error is not None, "leases are kept until the producer is closed"
            self._on_crash(error)

    def _on_crash(self, error: BaseException) -> None:
        """Fails every pending delivery: no caller may wait for a dead sender."""
        self._crash = error
        self._fail_all(f"the producer has crashed: {error!r}")

    def _fail_all(self, reason: str) -> None:
        for delivery in list(self._outstanding):
            self._on_failed(delivery, stopped(reason))

    def _in_transactions(self) -> Transactions:
        self._running()
        if self._transactions is None:
            raise ProducerError("the producer has no transactional_id")
        return self._transactions

    def _take_identity(self, transactions: Transactions) -> None:
        """Numbers what comes next under the session's identity. Nothing is outstanding."""
        identity = transactions.session.identity
        assert self._starts is not None
        if identity != self._starts.identity:
            self._starts = Starts(identity)
            for sender in self._senders.values():
                sender.begin_anew(identity)

    def _on_transaction_failed(self, error: TransactionError) -> None:
        self._fail_all(str(error))

    def _running(self) -> Surroundings:
        if self._around is None:
            raise ProducerError("the producer is not started, or closed")
        if self._crash is not None:
            raise ProducerError("the producer has crashed") from self._crash
        return self._around

    def _loop_time(self) -> float:
        return asyncio.get_running_loop().time()

    def _new_outcome(self) -> AsyncOutcome:
        return asyncio.get_running_loop().create_future()

    def _submit_open(self, batch: OpenBatch[AsyncOutcome]) -> None:
        self._running()
        if self._transactions is not None:
            self._transactions.check_sound()  # otherwise it stays open, and is dropped by the abort
        batch.is_cut = True
        self.submit(batch.topic, batch.partition, batch.records, batch.size, batch.outcome)

    async def _wait_for_room(self) -> None:
        while self._outstanding_bytes >= self.settings.buffer_bytes_max:
            await self._next_progress()

    async def _next_progress(self) -> None:
        self._progress.clear()
        await self._progress.wait()

    def _on_delivered(self, delivery: Delivery) -> None:
        if self._outstanding.pop(delivery, False) is None:
            self._outstanding_bytes -= delivery.size
            self._progress.set()

    def _on_failed(self, delivery: Delivery, error: DeliveryError) -> None:
        self._on_delivered(delivery)
        if self._transactions is not None:
            self._transactions.fail(error)
        if delivery.fail(error) and self._first_error is None:
            self._first_error = error


def stopped(reason: str) -> DeliveryError:
    """The error of records that were given up because of something else."""
    return DeliveryError(reason, failure=Failure.STOPPED, error_code=0, may_be_stored=True)
