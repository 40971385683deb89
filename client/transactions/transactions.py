"""The transactions of one producer, one after the other, and what is part of the open one."""

from __future__ import annotations

import asyncio
import contextlib
import enum
from collections.abc import Callable, Iterator, Mapping

from echoless.client.errors import ProducerError
from echoless.client.partition_sender import PartitionSender
from echoless.client.transactions.errors import AbortableError, TransactionError, UnansweredError
from echoless.client.transactions.group_metadata import GroupMetadata
from echoless.client.transactions.session import TransactionalSession


class TransactionStage(enum.Enum):
    """The stage of a producer's transaction; the value says it in words."""

    NONE = "no transaction is open: begin one"
    OPEN = "a transaction is open"
    COMMITTING = "a commit was requested, and its outcome is not known: commit again to learn it"
    ABORTING = "an abort was requested, and is not finished: abort again"
    OVER = "the session is over"


class Transactions:
    """The producer flushes before a commit, and stops its senders before an abort."""

    def __init__(
        self, session: TransactionalSession, on_failed: Callable[[TransactionError], None]
    ) -> None:
        """`on_failed` is called when partitions cannot become part of the transaction, so that batches wait in vain."""
        self.session = session
        self.stage = TransactionStage.NONE
        self._on_failed = on_failed
        self._failure: ProducerError | None = None
        """The reason for which the open transaction cannot be committed, or the session is over."""
        self._joined: set[tuple[str, int]] = set()
        """The partitions in the open transaction, those that are about to be included."""
        self._has_offsets = False
        self._joining: list[tuple[tuple[str, int], PartitionSender]] = []
        self._adding: asyncio.Task[None] | None = None

    def check(self, *allowed: TransactionStage) -> None:
        """Raises `ProducerError` in any other stage."""
        self.check_alive()
        if self.stage not in allowed:
            raise ProducerError(self.stage.value)

    def check_alive(self) -> None:
        """Raises the `TransactionError` that has ended the session, if there was one."""
        if self.stage is TransactionStage.OVER and self._failure is not None:
            raise self._failure

    def check_sound(self) -> None:
        """Raises `AbortableError` if the open transaction can only be aborted; `ProducerError` if none is open."""
        self.check(TransactionStage.OPEN)
        if isinstance(self._failure, TransactionError):
            raise self._failure
        if self._failure is not None:
            raise AbortableError(
                f"the transaction cannot be committed: {self._failure}"
            ) from self._failure

    def fail(self, failure: ProducerError) -> None:
        """Notes why the open transaction cannot be committed."""
        if self._failure is None:
            self._failure = failure

    async def begin(self) -> None:
        """Begins a transaction. Raises `ProducerError`."""
        self.check(TransactionStage.NONE)
        with self._noting():
            await self.session.begin_transaction()
        self.stage = TransactionStage.OPEN

    def join(self, topic: str, partition: int, sender: PartitionSender) -> None:
        """Makes a partition part of the transaction; in the first generation its sender waits for that."""
        key = (topic, partition)
        if key in self._joined:
            return
        self._joined.add(key)
        if self.session.raises_epoch:
            return
        sender.hold()
        self._joining.append((key, sender))
        if self._adding is None:
            self._adding = asyncio.get_running_loop().create_task(self._add())

    async def send_offsets(
        self, offsets: Mapping[tuple[str, int], int], group: GroupMetadata, metadata: str
    ) -> None:
        """Makes offsets of a group part of the transaction. Raises `TransactionError`."""
        self.check_sound()
        self._has_offsets = True
        with self._noting():
            await self.session.commit_offsets(offsets, group, metadata)

    async def commit(self) -> None:
        """Commits what is acknowledged by now. Raises `TransactionError`."""
        if self.stage is not TransactionStage.COMMITTING:
            self.check_sound()
        self.stage = TransactionStage.COMMITTING
        with self._noting():
            if self.is_begun:
                await self.session.commit()
        self._end()

    def begin_abort(self) -> None:
        """Lets nothing follow but `abort`, also if that is cancelled. Raises `ProducerError` if no transaction is open.

        Invariant: no sequence that a transaction has used is used again after this.
        """
        self.check(TransactionStage.OPEN, TransactionStage.ABORTING)
        self.stage = TransactionStage.ABORTING

    async def abort(self) -> None:
        """Aborts. Raises `TransactionError`."""
        await self.stop_adding()
        with self._noting():
            if self.is_begun:
                await self.session.abort()
        self._end()

    async def stop_adding(self) -> None:
        """Includes no more partitions; their senders wait in vain."""
        if self._adding is not None:
            self._adding.cancel()
            await asyncio.gather(self._adding, return_exceptions=True)

    @property
    def is_begun(self) -> bool:
        """Whether brokers may know of the transaction."""
        return bool(self._joined) or self._has_offsets

    def _end(self) -> None:
        self.stage = TransactionStage.NONE
        self._failure = None
        self._joined.clear()
        self._joining.clear()
        self._has_offsets = False

    @contextlib.contextmanager
    def _noting(self) -> Iterator[None]:
        """Notes what an error means for the producer."""
        try:
            yield
        except UnansweredError:
            raise
        except AbortableError as error:
            if self.stage is TransactionStage.COMMITTING:
                self.stage = TransactionStage.OPEN
            self.fail(error)
            raise
        except TransactionError as error:
            self.stage, self._failure = TransactionStage.OVER, error
            raise

    async def _add(self) -> None:
        """Adds partitions until none waits: those that come within one turn of the loop go together."""
        try:
            while self._joining:
                some, self._joining = self._joining, []
                with self._noting():
                    await self.session.add_partitions([key for key, _ in some])
                for _, sender in some:
                    sender.release()
        except TransactionError as error:
            self._on_failed(error)
        finally:
            self._adding = None
