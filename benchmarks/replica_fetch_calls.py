"""`python -m benchmarks.replica_fetch_calls`: how many calls a leader makes for one fetch of a follower.

It arrives, finds nothing, waits, and is answered when something was appended: twice for every few requests, if there are two
followers. The connection and the append are not counted; `request_calls.py` has them.
"""

from __future__ import annotations

import asyncio
import sys
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final, cast

from benchmarks.request_calls import Calls
from echoless.broker.config.names import LogFlush
from echoless.broker.metrics import Metrics
from echoless.broker.native.exchange import Exchange
from echoless.broker.network.promise import Promise
from echoless.broker.network.request import Peer
from echoless.protocol.native.codec import encode_message
from echoless.protocol.native.replica_session import NamedRow, SessionFetch
from echoless.protocol.native.replication import ReplicaWanted
from tests.broker.partitions.led import Led

if TYPE_CHECKING:
    from echoless.broker.services import Services

RECORDED: Final = 109
"""At the last count."""
_FOLLOWER: Final = 2
_BROKER_EPOCH: Final = 7
_LEADER_EPOCH: Final = 2
_FETCHES: Final = 10


async def count_calls() -> float:
    """Calls of the exchange for one fetch, and for its answer."""
    led = Led(LogFlush.OS, replicas=(1, _FOLLOWER))
    led.lead(_LEADER_EPOCH, isr=(1, _FOLLOWER))
    led.fencing.epochs[_FOLLOWER] = _BROKER_EPOCH
    exchange = Exchange(_services(led))
    peer, calls = Peer(1, "127.0.0.1:1"), Calls()
    for number in range(_FETCHES):
        frame = _frame(led, number)
        sys.setprofile(calls)
        waiting = exchange.answer(frame, peer)
        sys.setprofile(None)
        assert isinstance(waiting, Promise), "nothing has been appended yet"
        led.append(number)
        sys.setprofile(calls)
        buffers: Any = waiting.answer()
        sys.setprofile(None)
        assert sum(map(len, buffers)) > len(frame), "the answer has a batch"
    return calls.count / _FETCHES


def _services(led: Led) -> Services:
    """The parts of a broker that a fetch asks for."""
    parts = SimpleNamespace(
        metrics=Metrics(),
        access=None,
        quotas=SimpleNamespace(limits=None),
        partitions=SimpleNamespace(find=lambda _topic, _index: led.partition),
        cluster=SimpleNamespace(registered_epoch=lambda _: _BROKER_EPOCH, brokers=(1, _FOLLOWER)),
        stopping=asyncio.Event(),
    )
    return cast("Services", parts)


def _frame(led: Led, number: int) -> bytes:
    """The follower's message `number` of its session, which says that it has as many records."""
    partition = led.partition
    last_epoch = _LEADER_EPOCH if number else -1
    wanted = ReplicaWanted("orders", partition.topic_id, 0, _LEADER_EPOCH, number, last_epoch)
    message = SessionFetch(
        broker_id=_FOLLOWER,
        broker_epoch=_BROKER_EPOCH,
        max_wait_ms=500,
        bytes_max=1_000_000,
        session=1,
        session_epoch=number,
        named=[NamedRow(0, wanted)],
    )
    return encode_message({**message.to_message(), "correlation_id": number})


def main() -> None:
    print(f"{asyncio.run(count_calls()):.0f} calls a fetch, was {RECORDED}")


if __name__ == "__main__":
    main()
