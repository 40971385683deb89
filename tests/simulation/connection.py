"""Connections to brokers: of a client (in order, both ways), and between brokers (`SimulatedPeers`).

Every message really is encoded, answered by the broker's native `Exchange`, and its answer decoded; requests of the
Kafka port are frames, which its `KafkaDispatcher` answers.

A client's connection that it has given up leaves its requests in the network: they may still reach
the broker, minutes later, as from the buffer of a socket whose owner has gone. Messages between
brokers may be lost, arrive twice and overtake each other.
"""

from __future__ import annotations

import asyncio
from asyncio import Task
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any, Final

import msgpack

from echoless.broker.broker import Broker
from echoless.broker.config.loading import Address
from echoless.broker.handlers.dispatch import KafkaDispatcher
from echoless.broker.native.exchange import Exchange
from echoless.broker.network.request import CloseConnectionError, Peer
from echoless.broker.replication.peers import PeerError
from echoless.coordinators.groups.answers import GroupAnswer
from echoless.coordinators.groups.requests import GroupRequest
from echoless.protocol.errors import DecodeError
from echoless.protocol.framing import LENGTH_SIZE
from echoless.protocol.native.codec import encode_message
from tests.simulation.leads import Leads
from tests.simulation.network import Channel, Network
from tests.simulation.process import Process, close_unstarted

Answer = dict[str, Any]
Reply = Callable[[Answer | None], None]
"""Takes the answer; None: there is none, and the connection ends."""
Observer = Callable[["Service", Mapping[str, Any], Answer, float], None]
"""Sees each answer in the moment it leaves: service, request, answer, when the request arrived."""

REFUSED_AFTER_S: Final = 0.002


class ConnectionBrokenError(Exception):
    """No answer will come over this connection."""


class Service:
    """A broker that listens: its native port, in its process."""

    def __init__(self, node: str, process: Process, broker: Broker, observe: Observer) -> None:
        self.node = node
        self.process = process
        self.broker = broker
        self.leads = Leads(broker)
        self._exchange = Exchange(broker.services)
        self._kafka = KafkaDispatcher(broker.services)
        self._observe = observe
        self._hang_ups: dict[Callable[[], None], None] = {}
        self.is_open = True
        self.is_ending = False
        """Whether the broker is being stopped."""

    def new_peer(self, name: str) -> Peer:
        """The broker's view of a new connection."""
        return Peer(next(self.broker.connection_ids), name)

    def on_hang_up(self, callback: Callable[[], None]) -> None:
        """Calls back when the process has died and its connections are reset."""
        self._hang_ups[callback] = None

    def forget(self, callback: Callable[[], None]) -> None:
        self._hang_ups.pop(callback, None)

    def hang_up(self) -> None:
        """Resets the connections of a dead process, as the kernel does."""
        hang_ups, self._hang_ups = self._hang_ups, {}
        for callback in hang_ups:
            callback()

    def handle(self, message: Mapping[str, Any], frame: bytes, peer: Peer, reply: Reply) -> None:
        """Runs in the broker's process; `reply` is called there, now or later."""
        arrived = self.process.loop.time()
        if not self.is_open:
            reply(None)
            return
        try:
            outcome = self._exchange.answer(frame, peer)
        except CloseConnectionError:
            reply(None)
            return
        if hasattr(outcome, "__await__"):  # a tenth of the time of `isinstance` with an ABC
            self.process.loop.create_task(self._reply_later(message, arrived, outcome, reply))
        else:
            self._reply(message, arrived, outcome, reply)

    def ask_group(
        self, request: GroupRequest, reply: Callable[[GroupAnswer | None], None]
    ) -> Task[None] | None:
        """Has the coordinator of a group process the request; the task, unless the answer is there at once."""
        if not self.is_open:
            reply(None)
            return None
        answered = self.broker.services.groups.ask(request)
        if not isinstance(answered, Awaitable):
            reply(answered)
            return None
        work = answered if isinstance(answered, Coroutine) else _waited(answered)
        task = self.process.loop.create_task(work)
        task.add_done_callback(lambda done: None if done.cancelled() else reply(done.result()))
        return task

    def handle_frame(
        self, frame: bytes, peer: Peer, reply: Callable[[bytes | None], None]
    ) -> Task[None] | None:
        """Answers a request of the Kafka port; the task, unless the answer is there at once."""
        if not self.is_open:
            reply(None)
            return None
        try:
            dispatched = self._kafka(frame, peer)
        except (CloseConnectionError, DecodeError):
            reply(None)
            return None
        assert dispatched is not None, "every request is answered"
        if hasattr(dispatched, "__await__"):
            task = self.process.loop.create_task(_reply_with_frame(dispatched, reply))
            task.add_done_callback(
                lambda done: close_unstarted(dispatched) if done.cancelled() else None
            )
            return task
        reply(b"".join(dispatched))
        return None

    async def _reply_later(
        self, message: Mapping[str, Any], arrived: float, outcome: Awaitable[Any], reply: Reply
    ) -> None:
        try:
            buffers = await outcome
        except CloseConnectionError:
            reply(None)
        else:
            self._reply(message, arrived, buffers, reply)

    def _reply(
        self, message: Mapping[str, Any], arrived: float, buffers: Any, reply: Reply
    ) -> None:
        if buffers is None:
            return
        answer = msgpack.unpackb(b"".join(buffers)[LENGTH_SIZE:])
        self._observe(self, message, answer, arrived)
        reply(answer)


class Services:
    """The current listeners, by node name."""

    def __init__(self) -> None:
        self._open: dict[str, Service] = {}

    def find(self, node: str) -> Service | None:
        return self._open.get(node)

    def open(self, service: Service) -> None:
        self._open[service.node] = service

    def close(self, service: Service) -> None:
        service.is_open = False
        if self._open.get(service.node) is service:
            del self._open[service.node]


class ClientConnection:
    """A connection from one client to one run of one broker.

    Answers come in the order of the requests.
    """

    def __init__(self, network: Network, node: str, process: Process, service: Service) -> None:
        self.service = service
        self.is_broken = False
        self.may_arrive_late = True
        """Whether what it has sent may still arrive when the client has given up."""
        self._network = network
        self._process = process
        self._node = node
        service.process.soon(self._accept)
        self._up = Channel(network, node, service.node, service.process)
        self._down = Channel(network, service.node, node, process)
        self._waiting: deque[asyncio.Future[Any]] = deque()
        self._slots: deque[list[Any]] = deque()
        """Answers in the broker, in the order of their requests; an empty list is still to come."""
        self._tasks: list[Task[None]] = []
        """Requests that the broker was or is busy with."""
        self._is_closed = False
        """Whether the broker has closed its end."""
        service.on_hang_up(self._reset)

    def send(self, message: Mapping[str, Any]) -> asyncio.Future[Answer]:
        """The future answer; `ConnectionBrokenError` when the connection ends first."""
        return self._send(self._receive, message, encode_message(message))

    def ask_group(self, request: GroupRequest) -> asyncio.Future[Any]:
        """The future answer of the coordinator of a group; `ConnectionBrokenError` as above."""
        return self._send(self._receive_for_group, request)

    def send_frame(self, frame: bytes) -> asyncio.Future[bytes]:
        """The future answer to a request of the Kafka port, with its length; `ConnectionBrokenError` as above."""
        return self._send(self._receive_frame, frame)

    def _accept(self) -> None:
        """Runs in the broker: connections are numbered in the order in which they are made, however long it sleeps."""
        self._peer = self.service.new_peer(self._node)

    def _send(self, deliver: Callable[..., object], *args: Any) -> asyncio.Future[Any]:
        future: asyncio.Future[Any] = self._network.loop.create_future()
        if self.is_broken:
            future.set_exception(ConnectionBrokenError())
            return future
        self._waiting.append(future)
        self._up.send(deliver, *args)
        if self._network.happens(self._network.weather.break_probability):
            self._network.loop.call_later(
                self._network.delay_s(), self.abandon, context=self._process.context
            )
        return future

    def abandon(self) -> None:
        """The client gives up. What it has sent may still arrive, soon, late or never."""
        if self.is_broken:
            return
        self._end()
        self._down.close()
        fate = self._network.rng.random()
        if fate < 1 / 3 or not self.may_arrive_late:
            self._up.close()
            return
        if fate < 2 / 3:
            self._network.hold(self._up, self._network.rng.uniform(0, self._network.late_s_max))
        if self._tasks:
            self._up.send(self._hang_up)

    def _reset(self) -> None:
        self._down.send(self.break_off)

    def break_off(self) -> None:
        """The broker's end is gone."""
        if not self.is_broken:
            self._end()
            self._up.close()
            self._down.close()

    def _end(self) -> None:
        self.is_broken = True
        self.service.forget(self._reset)
        waiting, self._waiting = self._waiting, deque()
        for future in waiting:
            if not future.done():
                future.set_exception(ConnectionBrokenError())

    def _receive(self, message: Mapping[str, Any], frame: bytes) -> None:
        """Runs in the broker."""
        self.service.handle(message, frame, self._peer, self._new_reply())

    def _receive_for_group(self, request: GroupRequest) -> None:
        """Runs in the broker."""
        task = self.service.ask_group(request, self._new_reply())
        if task is not None:
            self._tasks.append(task)

    def _receive_frame(self, frame: bytes) -> None:
        """Runs in the broker."""
        if not self._is_closed:
            task = self.service.handle_frame(frame, self._peer, self._new_reply())
            if task is not None:
                self._tasks.append(task)

    def _hang_up(self) -> None:
        """Runs in the broker: the connection has ended, and no one waits for its answers."""
        self._is_closed = True
        for task in self._tasks:
            task.cancel()

    def _new_reply(self) -> Callable[[Any], None]:
        slot: list[Any] = []
        self._slots.append(slot)

        def reply(answer: Any) -> None:
            if answer is None:
                self._is_closed = True
                self._down.send(self.break_off)
                return
            slot.append(answer)
            while self._slots and self._slots[0]:
                self._down.send(self._take, self._slots.popleft()[0])

        return reply

    def _take(self, answer: Any) -> None:
        """Runs in the client."""
        if not self._waiting:
            return
        future = self._waiting.popleft()
        if not future.done():
            future.set_result(answer)


class SimulatedPeers:
    """`Peers` of one broker: each message on its own through the network."""

    def __init__(self, network: Network, services: Services, node: str, process: Process) -> None:
        self._network = network
        self._services = services
        self._node = node
        self._process = process
        self._waiting: dict[asyncio.Future[Answer | None], int] = {}
        """Calls in flight, with the broker that is asked."""

    async def call(
        self, broker_id: int, address: Address, message: Mapping[str, Any], *, timeout_s: float
    ) -> Answer:
        """See `Peers.call`."""
        network = self._network
        future: asyncio.Future[Answer | None] = network.loop.create_future()
        self._waiting[future] = broker_id
        service = self._services.find(address.host)

        def reset() -> None:
            self._later(network.delay_s(), _resolve, future, None)

        if service is not None:
            service.on_hang_up(reset)
            self._send(service, dict(message), future)
        elif not network.is_cut(self._node, address.host):
            self._later(REFUSED_AFTER_S, _resolve, future, None)
        try:
            async with asyncio.timeout(timeout_s):
                answer = await future
        except TimeoutError:
            raise PeerError(f"broker {broker_id} has not answered in {timeout_s} s") from None
        finally:
            del self._waiting[future]
            if service is not None:
                service.forget(reset)
        if answer is None:
            raise PeerError(f"broker {broker_id} at {address}: the connection ended")
        return answer

    def disconnect(self, broker_id: int) -> None:
        """See `Peers.disconnect`; what has been sent may still arrive."""
        for future, asked in self._waiting.items():
            if asked == broker_id:
                _resolve(future, None)

    async def close(self) -> None:
        """See `Peers.close`."""

    def _send(
        self, service: Service, message: Answer, future: asyncio.Future[Answer | None]
    ) -> None:
        network = self._network
        frame = encode_message({"correlation_id": 0, **message})
        weather = network.weather_of(message["type"])
        if not network.happens(weather.drop_probability):
            self._transmit(service, message, frame, network.delay_s(weather), future)
        if network.happens(weather.duplicate_probability):
            late_s = network.rng.uniform(0, weather.late_s)
            self._transmit(service, message, frame, late_s, None)

    def _transmit(
        self,
        service: Service,
        message: Answer,
        frame: bytes,
        delay_s: float,
        future: asyncio.Future[Answer | None] | None,
    ) -> None:
        def arrive() -> None:
            if not self._network.is_cut(self._node, service.node):
                service.handle(message, frame, service.new_peer(self._node), reply)

        def reply(answer: Answer | None) -> None:
            if future is None or self._network.is_cut(service.node, self._node):
                return
            weather = self._network.weather_of(message["type"])
            if not self._network.happens(weather.drop_probability):
                self._later(self._network.delay_s(weather), _resolve, future, answer)

        service.process.later(delay_s, arrive)

    def _later(self, delay_s: float, callback: Callable[..., object], *args: Any) -> None:
        self._process.later(delay_s, callback, *args)


async def _reply_with_frame(
    dispatched: Awaitable[Any], reply: Callable[[bytes | None], None]
) -> None:
    try:
        buffers = await dispatched
    except CloseConnectionError:
        reply(None)
    else:
        reply(b"".join(buffers))


async def _waited(answered: Awaitable[GroupAnswer]) -> GroupAnswer:
    return await answered


def _resolve(future: asyncio.Future[Answer | None], answer: Answer | None) -> None:
    if not future.done():
        future.set_result(answer)
